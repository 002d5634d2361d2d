"""Twenty sessions, forty vague follow-ups and twenty prompts after a compaction: a test set.

A session's lines alternate between the user and the assistant.  Each prompt leans on what was said
before, out of sight by then; ``needs`` are words without which it cannot be carried out as meant.
They were written before the code was run on any of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class LeaningPrompt(NamedTuple):
    """A prompt, and words of the session that it cannot do without."""

    text: str
    needs: tuple[str, ...]


class WorkingSession(NamedTuple):
    """A session up to its compaction, two vague follow-ups, and the next plain prompt."""

    lines: tuple[str, ...]
    follow_ups: tuple[LeaningPrompt, LeaningPrompt]
    next: LeaningPrompt


SESSIONS: Final = (
    WorkingSession(
        (
            "Help me move the blog from WordPress to Hugo, the domain is tidepool.example.",
            "Sure. Shall the old URLs stay as they are?",
            "Yes, keep all permalinks under /posts/, and the comments go to giscus.",
            "Noted: permalinks under /posts/ and giscus for comments.",
            "Use the theme Papermod and Netlify for hosting.",
            "I made the Hugo site with Papermod and a netlify.toml.",
            "Export the 214 articles with the wordpress-to-hugo plugin.",
            "Exported. Nine articles have broken image links.",
            "Fix those nine by hand.",
            "All nine are fixed now.",
            "Good, how does the build do?",
            "The build takes four seconds and has no warnings.",
        ),
        (
            LeaningPrompt("Go on.", ("Hugo", "giscus")),
            LeaningPrompt("And what is left of it?", ("giscus", "Netlify")),
        ),
        LeaningPrompt("Write the redirect rules.", ("/posts/",)),
    ),
    WorkingSession(
        (
            "We plan the team offsite in Ghent for 14 people, from 11 to 13 June.",
            "Great. What is the budget?",
            "At most 9,500 euros in total, and two of us are vegan.",
            "Understood: 9,500 euros, two vegans.",
            "The hotel must have a meeting room with a projector.",
            "Hotel Harmony and Hotel Flandria both have one.",
            "Take Hotel Flandria.",
            "I drafted a request to Hotel Flandria.",
            "What about trains from Brussels?",
            "They run every half hour and take 35 minutes.",
            "Fine, and a boat tour on the second evening?",
            "The evening boat tour takes 90 minutes and starts at 19:00.",
        ),
        (
            LeaningPrompt("Make it shorter.", ("boat tour",)),
            LeaningPrompt("Do the rest.", ("Flandria", "9,500")),
        ),
        LeaningPrompt("Draft the invitation for everyone.", ("11 to 13 June",)),
    ),
    WorkingSession(
        (
            "Debug why the invoice job fails on host crane since Tuesday.",
            "Which job is it, and where are its logs?",
            "It is invoice-nightly, the logs are in /var/log/invoice on crane.",
            "The log shows: connection to ledger-db refused.",
            "We moved ledger-db to port 5544 on Monday.",
            "Then the job still has port 5432 in its settings, in /etc/invoice.toml.",
            "Never restart crane before 18:00, the shop runs on it.",
            "Understood, no restart before 18:00.",
            "Change the port in the settings.",
            "Changed it to 5544.",
            "Run it once by hand.",
            "It ran through and wrote 312 invoices.",
        ),
        (
            LeaningPrompt("Now finish it.", ("18:00", "invoice-nightly")),
            LeaningPrompt("Why did that happen again?", ("5544",)),
        ),
        LeaningPrompt("Restart the service.", ("18:00",)),
    ),
    WorkingSession(
        (
            "I'm writing a short story about a lighthouse keeper named Ilse who is going blind.",
            "Which tone do you want?",
            "Dry and quiet, in the present tense, no dialogue at all.",
            "Present tense, quiet, without dialogue.",
            "It should end with the lamp being automated.",
            "I wrote a first paragraph of 120 words.",
            "The island is called Skarv.",
            "Skarv it is.",
            "Add a gull with a broken wing.",
            "The gull now nests under the gallery.",
            "Let the second paragraph be about fog.",
            "The second paragraph is about three days of fog.",
        ),
        (
            LeaningPrompt("Continue.", ("Ilse", "present tense")),
            LeaningPrompt("Do the same for the last part.", ("automated",)),
        ),
        LeaningPrompt("Write the third paragraph.", ("no dialogue",)),
    ),
    WorkingSession(
        (
            "Let's design the schema for a library app called Shelfmark, on Postgres 16.",
            "Which entities are there?",
            "Books, copies, members and loans; a member may have at most five loans.",
            "I propose four tables with a check on five loans.",
            "All ids are UUID version 7, and no cascading deletes.",
            "UUIDv7 for ids and restrict on delete.",
            "Name tables in the singular.",
            "Renamed: book, copy, member, loan.",
            "Add an index on the due date.",
            "Added loan_due_idx.",
            "And one on the title?",
            "Added book_title_idx with trigrams.",
        ),
        (
            LeaningPrompt("Next one, please.", ("Shelfmark",)),
            LeaningPrompt("Once more, but as a migration.", ("UUID",)),
        ),
        LeaningPrompt("Create the table for reservations.", ("singular", "cascading")),
    ),
    WorkingSession(
        (
            "Prepare my talk on beekeeping for the Rotary club on 22 April, 20 minutes.",
            "Who listens?",
            "About 40 people, none of them beekeepers, so no jargon.",
            "No jargon, 40 listeners, 20 minutes.",
            "I want three parts: the year of a colony, honey, and what kills bees.",
            "Outline with three parts made.",
            "I have eleven hives on the roof of the old brewery.",
            "I put the eleven hives into the opening.",
            "Write notes for part one.",
            "Notes for the year of a colony are written, 310 words.",
            "Shorten them a little.",
            "They are at 240 words now.",
        ),
        (
            LeaningPrompt("Now the next part.", ("honey",)),
            LeaningPrompt("Still too long, same as before.", ("240 words",)),
        ),
        LeaningPrompt("Write the closing words.", ("no jargon",)),
    ),
    WorkingSession(
        (
            "Refactor the payments module in repo cormorant without changing its public API.",
            "Which parts trouble you most?",
            "charge.py has 1,900 lines; split it by provider: Stripe, Adyen and Mollie.",
            "I split charge.py into three provider modules.",
            "Every step must keep the 214 tests green, run them with make fast.",
            "make fast: 214 passed.",
            "Don't touch refunds.py, Mira works on it.",
            "refunds.py stays as it is.",
            "Extract the retry logic.",
            "The retry logic is in retry.py now.",
            "Does the linter agree?",
            "ruff finds nothing.",
        ),
        (
            LeaningPrompt("Keep going.", ("refunds.py", "make fast")),
            LeaningPrompt("What else was there?", ("Mollie",)),
        ),
        LeaningPrompt("Commit the changes.", ("refunds.py",)),
    ),
    WorkingSession(
        (
            "I need a meal plan for next week, for two adults and a child of four.",
            "Any dislikes or allergies?",
            "The child has a nut allergy, and my wife eats no pork.",
            "No nuts and no pork.",
            "Cooking must take at most 30 minutes on weekdays.",
            "I planned Monday to Wednesday with dishes under 30 minutes.",
            "On Thursday we are at my parents'.",
            "Thursday is left free.",
            "Friday should be fish.",
            "Friday is salmon with leek.",
            "Nice, something with potatoes on Saturday.",
            "Saturday is potato gratin.",
        ),
        (
            LeaningPrompt("And the last one?", ("nut",)),
            LeaningPrompt("Change that one.", ("gratin",)),
        ),
        LeaningPrompt("Write the shopping list.", ("nut", "pork")),
    ),
    WorkingSession(
        (
            "Translate our onboarding mail into German, French and Polish.",
            "Formal or informal?",
            "Informal in German, formal in French and Polish.",
            "Informal German, formal French and Polish.",
            "Our product name Heronry is never translated, and 'workspace' stays English.",
            "Heronry and workspace stay.",
            "Here is the mail: Welcome to Heronry, your workspace is ready.",
            "German: Willkommen bei Heronry, dein Workspace ist bereit.",
            "Good. French now.",
            "French: Bienvenue chez Heronry, votre workspace est prêt.",
            "Perfect.",
            "Glad that it fits.",
        ),
        (
            LeaningPrompt("Now the other one.", ("Polish",)),
            LeaningPrompt("Go ahead with it.", ("formal", "Polish")),
        ),
        LeaningPrompt("Translate the second mail, too.", ("workspace",)),
    ),
    WorkingSession(
        (
            "I study for the Spanish B2 exam on 30 May and have 45 minutes a day.",
            "What is hardest for you?",
            "The subjunctive, and writing letters of complaint.",
            "We drill the subjunctive and letters.",
            "Correct me only at the end of an exercise, never in between.",
            "Corrections at the end only.",
            "Start with ojalá.",
            "Exercise 1: five sentences with ojalá.",
            "Ojalá venga, ojalá llueva, ojalá tengas suerte.",
            "Three of three right.",
            "What comes after ojalá?",
            "Next are sentences with aunque.",
        ),
        (
            LeaningPrompt("Again, but harder.", ("subjunctive",)),
            LeaningPrompt("Okay, next.", ("aunque",)),
        ),
        LeaningPrompt("Give me a new exercise.", ("subjunctive", "at the end")),
    ),
    WorkingSession(
        (
            "Let's set up backups for the NAS named pelican with restic.",
            "Where shall the backups go?",
            "To a Hetzner storage box, every night at 02:30.",
            "restic to the storage box at 02:30.",
            "Keep 7 daily, 4 weekly and 12 monthly snapshots.",
            "The retention is 7, 4 and 12.",
            "The folder /volume1/scratch must not be backed up.",
            "/volume1/scratch is excluded.",
            "Write the systemd timer.",
            "restic-pelican.timer is written.",
            "Is it enabled?",
            "It is enabled and waits for the first run.",
        ),
        (
            LeaningPrompt("Then do the other thing.", ("pelican",)),
            LeaningPrompt("Check it again.", ("02:30",)),
        ),
        LeaningPrompt("Write the forget command.", ("12 monthly",)),
    ),
    WorkingSession(
        (
            "Review the contract with the printer Nordlys before I sign on Friday.",
            "What worries you?",
            "The notice period of six months, and the price of 4.80 a copy.",
            "Six months is long; 4.80 is above the market.",
            "We want three months and at most 4.20 a copy.",
            "I drafted: three months' notice and 4.20 a copy.",
            "Delivery has to be within ten working days.",
            "Added delivery within ten working days.",
            "Is the clause on liability all right?",
            "It caps liability at the order value, which is usual.",
            "And the place of jurisdiction?",
            "It is Bergen, as for their other clients.",
        ),
        (
            LeaningPrompt("Put that into a mail.", ("4.20",)),
            LeaningPrompt("Shorter.", ("Bergen",)),
        ),
        LeaningPrompt("Write to them.", ("three months", "ten working days")),
    ),
    WorkingSession(
        (
            "I train for the Lisbon half marathon on 18 October and want to finish under 1:45.",
            "How much do you run now?",
            "Three runs a week, 28 kilometres in all; my left knee hurts on descents.",
            "We spare the knee: no descents.",
            "No runs on Sundays, that is family day.",
            "Sundays are free.",
            "Plan the first four weeks.",
            "Weeks 1 to 4 go from 28 to 36 kilometres.",
            "What pace for the long run?",
            "5:40 a kilometre for the long run.",
            "And intervals?",
            "Six times 800 metres at 4:40.",
        ),
        (
            LeaningPrompt("Now the following ones.", ("36 kilometres",)),
            LeaningPrompt("Adjust it.", ("knee",)),
        ),
        LeaningPrompt("Plan weeks five to eight.", ("Sundays", "1:45")),
    ),
    WorkingSession(
        (
            "Build a dashboard for the wind farm Osterhav with 42 turbines in Grafana.",
            "Where does the data come from?",
            "From InfluxDB, bucket osterhav_raw, a value every ten seconds.",
            "Bucket osterhav_raw, every ten seconds.",
            "Alarms go to the channel #osterhav-duty, not by mail.",
            "Alarms to #osterhav-duty.",
            "Anything above 85 degrees in the gearbox is critical.",
            "The threshold for the gearbox is 85 degrees.",
            "Add a panel for wind speed.",
            "The panel for wind speed is there.",
            "Make it a heat map.",
            "It is a heat map now.",
        ),
        (
            LeaningPrompt("Add the other one as well.", ("gearbox",)),
            LeaningPrompt("Back to the first one.", ("Osterhav",)),
        ),
        LeaningPrompt("Create the alarm rule.", ("85 degrees", "#osterhav-duty")),
    ),
    WorkingSession(
        (
            "Help me write my motivation letter for the PhD on peat bogs in Groningen.",
            "What is your background?",
            "A master's in hydrology from Uppsala, with a thesis on drained mires.",
            "Hydrology in Uppsala, thesis on drained mires.",
            "The letter may have 500 words, and the supervisor is Dr Anneke Vos.",
            "500 words, addressed to Dr Vos.",
            "Mention my field season in Estonia in 2024.",
            "The Estonian field season is in paragraph two.",
            "The opening sounds stiff.",
            "I made the opening warmer.",
            "Better.",
            "Good to hear.",
        ),
        (
            LeaningPrompt("One more time.", ("Groningen",)),
            LeaningPrompt("Now the ending.", ("Vos",)),
        ),
        LeaningPrompt("Write the final version.", ("500 words", "Estonia")),
    ),
    WorkingSession(
        (
            "We write a command line tool in Rust called sandpiper that renames photos.",
            "By which scheme?",
            "By date and camera: 2026-03-04_X100_0001.jpg, in local time.",
            "Scheme: date, camera, number.",
            "It must never overwrite a file, and --dry-run is the default.",
            "Dry run by default, no overwriting.",
            "Read EXIF with the crate kamadak-exif.",
            "EXIF is read with kamadak-exif.",
            "Handle files without EXIF.",
            "They take the file's time of change.",
            "Write a test for that.",
            "The test passes.",
        ),
        (
            LeaningPrompt("What's next?", ("sandpiper",)),
            LeaningPrompt("Do it like before.", ("kamadak-exif",)),
        ),
        LeaningPrompt("Implement the renaming itself.", ("overwrite", "dry")),
    ),
    WorkingSession(
        (
            "Organise my move from Graz to Trieste on 29 August.",
            "How big is the flat?",
            "Three rooms, 74 square metres, with a piano that must not be laid flat.",
            "74 square metres and an upright piano.",
            "The old flat has to be handed over by noon on 31 August.",
            "Handover by noon on 31 August.",
            "Movers may cost 2,200 euros at most.",
            "I found three firms below 2,200 euros.",
            "Ask the one named Kobal.",
            "I wrote to Kobal.",
            "Do I need a parking permit?",
            "Yes, from the comune, five days before.",
        ),
        (
            LeaningPrompt("Do that.", ("permit",)),
            LeaningPrompt("And then?", ("31 August",)),
        ),
        LeaningPrompt("Write a checklist.", ("piano", "31 August")),
    ),
    WorkingSession(
        (
            "Analyse the survey of 1,204 members of the choir association.",
            "What do you want to know?",
            "Why members under 30 leave; drop all answers without an age.",
            "Answers without an age are dropped, 1,131 remain.",
            "Report shares with 95 percent intervals, no p-values.",
            "Intervals, no p-values.",
            "The file is survey_2026.csv, separator semicolon.",
            "Loaded survey_2026.csv.",
            "Show reasons by age group.",
            "Under 30, 44 percent name the rehearsal time.",
            "Plot it.",
            "A bar chart by age group is saved.",
        ),
        (
            LeaningPrompt("Now the same by region.", ("95 percent",)),
            LeaningPrompt("Explain that.", ("rehearsal time",)),
        ),
        LeaningPrompt("Write the summary of the results.", ("p-values", "under 30")),
    ),
    WorkingSession(
        (
            "Make a logo brief for the bakery Kornblume in Weimar.",
            "Which colours?",
            "Cornflower blue and flour white, never brown.",
            "Blue and white, no brown.",
            "It has to work in one colour on paper bags, 3 cm wide.",
            "Works in one colour at 3 cm.",
            "The designer is Juri, deadline 7 May.",
            "For Juri, by 7 May.",
            "Add two examples that we like.",
            "I added a tea shop and a mill.",
            "The mill is too rustic.",
            "The mill is out.",
        ),
        (
            LeaningPrompt("Finish it.", ("Kornblume", "7 May")),
            LeaningPrompt("Another one instead.", ("rustic",)),
        ),
        LeaningPrompt("Turn it into an e-mail.", ("Juri", "brown")),
    ),
    WorkingSession(
        (
            "Migrate our CI from Travis to GitHub Actions for the repo plover.",
            "Which jobs are there?",
            "lint, test on Python 3.11 and 3.12, and a release to PyPI on tags.",
            "Three jobs, two Python versions.",
            "Secrets come from the environment named release, nobody else's.",
            "Secrets only in the environment release.",
            "The test job may take ten minutes at most.",
            "timeout-minutes is 10.",
            "Write the lint job.",
            "lint.yml is written and green.",
            "Cache the wheels.",
            "Wheels are cached by the lock file's hash.",
        ),
        (
            LeaningPrompt("Next job.", ("3.12",)),
            LeaningPrompt("Same again for that.", ("cached",)),
        ),
        LeaningPrompt("Write the release job.", ("PyPI", "environment")),
    ),
)  # fmt: skip
