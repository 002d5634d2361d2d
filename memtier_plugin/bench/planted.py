"""Planted lines: two hundred facts about forty people, each with two questions.

One question repeats the line's own words.  The other is a paraphrase that shares the name and few
other content words.  No person has two facts of one kind, so every question has one answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_NAMES: Final = """
    Alma Amir Bruno Carla Chen Dalia Edgar Elif Farid Fiona Grace Hector Hugo Ines Ivan Jonas
    Kira Laila Lars Lucia Malik Marta Mei Milan Nadia Noor Olga Omar Pablo Petra Quentin Rosa
    Samir Selma Sven Tariq Uma Vera Wanda Yusuf
"""
PEOPLE: Final = tuple(_NAMES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedLine:
    """A line, its person, and the two questions that only this line answers."""

    line: str
    own_words: str
    paraphrase: str
    person: str


@dataclass(frozen=True, slots=True)
class _PlantedKind:
    """A kind of fact: templates of the line and its questions, and the values per person.

    A row is ``a = b = value``, ``a = value`` or ``value`` (the line says a, the paraphrase b); rows
    are separated by semicolons.
    """

    line: str
    own_words: str
    paraphrase: str
    rows: str

    def fill_rows(self, people: Iterator[str]) -> Iterator[PlantedLine]:
        """Yield one line per row, each about the next person."""
        for row in " ".join(self.rows.split()).split("; "):
            *context, value = row.split(" = ")
            a, b = (*context, *context)[:2] if context else ("", "")
            person = next(people)
            words = {"who": person, "a": a, "b": b, "value": value}
            yield PlantedLine(
                line=self.line.format(**words),
                own_words=self.own_words.format(**words),
                paraphrase=self.paraphrase.format(**words),
                person=person,
            )


def plant_lines(count: int, seed: int) -> list[PlantedLine]:
    """Return ``count`` lines (at most `MAX_PLANTED`), deterministic per seed."""
    chance = random.Random(seed)
    people = list(PEOPLE)
    chance.shuffle(people)
    turns = (people[number % len(people)] for number in range(MAX_PLANTED))
    lines = [line for kind in _KINDS for line in kind.fill_rows(turns)]
    chance.shuffle(lines)
    return lines[:count]


_KINDS: Final = (
    _PlantedKind(
        "{who} cannot eat {value}: one bite is enough for a night of rashes.",
        "What can {who} not eat, where one bite is enough for a night of rashes?",
        "Which food is {who} allergic to?",
        """
        walnuts; shrimp; celery; sesame seeds; strawberries; mustard; soybeans; crab
        """,
    ),
    _PlantedKind(
        "{who} adopted a {a} from the shelter and called it {value}.",
        "What did {who} call the {a} adopted from the shelter?",
        "What is the name of {who}'s {b}?",
        """
        kitten = cat = Biscuit; puppy = dog = Comet; pony = small horse = Pepper; bunny
        = pet rabbit = Clover; parakeet = bird = Mango; hamster = pet rodent = Nugget;
        terrapin = pet turtle = Pebble; foal = young horse = Juniper
        """,
    ),
    _PlantedKind(
        "{who} has worked as {a} at {value} since the spring.",
        "Where has {who} worked as {a} since the spring?",
        "Who employs {who} as {b}?",
        """
        a lawyer = an attorney = Norwick and Hale; a physician = a doctor = the Elmstead
        clinic; a bookkeeper = an accountant = Farrow Freight; a programmer = a software
        developer = Brightmoor Systems; a chef = a cook = the Copper Ladle; a janitor =
        a caretaker = the Savoy building; a salesman = a shop assistant = Tilbury
        Outfitters; a journalist = a reporter = the Evening Gazette
        """,
    ),
    _PlantedKind(
        "{who} sold the old {a} and now drives {value} instead.",
        "What does {who} drive now instead of the old {a} that was sold?",
        "Which vehicle has taken the place of {who}'s former {b}?",
        """
        car = automobile = a station wagon; truck = lorry = a yellow tractor; motorcycle
        = motorbike = a red roadster; van = minibus = a silver camper; sedan = saloon =
        a black pickup; bicycle = bike = an orange tricycle; coupe = sports car = an
        electric hatchback; jeep = off-roader = a green convertible
        """,
    ),
    _PlantedKind(
        "{who} is moving to {value} in autumn because the rent went up.",
        "Where is {who} moving to in autumn because the rent went up?",
        "Which town will {who} relocate to?",
        """
        Ghent; Malaga; Cork; Graz; Turku; Bergen; Porto; Lublin
        """,
    ),
    _PlantedKind(
        "The {a} with {who} was put off until {value}.",
        "Until when was the {a} with {who} put off?",
        "On which date will {who}'s postponed {b} take place?",
        """
        wedding = marriage ceremony = the ninth of May; exam = test = the third of June;
        meeting = conference = the last day of July; match = game = the first of August;
        trip = journey = the tenth of September; surgery = operation = the second of
        October; recital = concert = the sixth of November; interview = job talk = the
        eighth of December
        """,
    ),
    _PlantedKind(
        "{who} keeps the spare key {value}.",
        "Where does {who} keep the spare key?",
        "Where is {who}'s extra house key hidden?",
        """
        under the blue flower pot; behind a loose brick; inside the biscuit tin; on a
        nail in the shed; in the left rubber boot; beneath the doormat; above the gas
        meter; in the bird feeder
        """,
    ),
    _PlantedKind(
        "The {a} in {who}'s kitchen broke down and {value} repaired it.",
        "Who repaired the {a} in {who}'s kitchen when it broke down?",
        "By whom was {who}'s faulty {b} fixed?",
        """
        fridge = refrigerator = Mr Aldous; stove = cooker = Mrs Pickering; tap = faucet
        = Mr Bellweather; dishwasher = machine for the dishes = Ms Okafor; lamp =
        ceiling light = Mr Lindqvist; fan = ventilator = Mrs Tanaka; drain = waste pipe
        = Mr Delacroix; freezer = ice box = Ms Varga
        """,
    ),
    _PlantedKind(
        "For the {a} {who} was given {value}.",
        "What was {who} given for the {a}?",
        "Which present did {who} receive at the {b}?",
        """
        wedding = marriage = a brass telescope; graduation = end of college = a sewing
        machine; retirement = end of working life = a leather suitcase; housewarming =
        move into a new home = an espresso machine; birthday = anniversary = a set of
        chisels; baptism = christening = a silver spoon; promotion = step up at work = a
        fountain pen; engagement = betrothal = a wool blanket
        """,
    ),
    _PlantedKind(
        "{who} takes {value} every morning for {a}.",
        "What does {who} take every morning for {a}?",
        "Which remedy has {who} been told to swallow daily against {b}?",
        """
        high blood pressure = hypertension = hawthorn syrup; sleeplessness = insomnia =
        valerian drops; an upset stomach = nausea = ginger capsules; hay fever = pollen
        allergy = nettle tablets; a sore back = spinal pain = willow bark; cramps =
        muscle spasms = magnesium powder; heartburn = acid reflux = charcoal pills;
        nervousness = anxiety = lemon balm
        """,
    ),
    _PlantedKind(
        "{who} has seen the film {value} more often than any other.",
        "Which film has {who} seen more often than any other?",
        "What is {who}'s favourite movie?",
        """
        The Salt Lantern; Nine Quiet Miles; A Winter for Two; The Watchmaker's Debt;
        Paper Harbour; Under Seven Bridges; The Last Orchard; Midnight at Calder
        """,
    ),
    _PlantedKind(
        "{who} goes to {value} lessons on {a} evenings.",
        "Which lessons does {who} go to on {a} evenings?",
        "What is {who} learning in a weekly course after work?",
        """
        Monday = accordion; Tuesday = fencing; Wednesday = pottery; Thursday =
        Portuguese; Friday = welding; Monday = tango; Tuesday = sign language; Wednesday
        = calligraphy
        """,
    ),
    _PlantedKind(
        "{who}'s {a} is called {value}.",
        "What is {who}'s {a} called?",
        "Do you know the name of {who}'s {b}?",
        """
        wife = spouse = Henrietta; mother = mum = Philippa; father = dad = Leopold; boss
        = supervisor = Cordelia; grandmother = granny = Winifred; landlord = house owner
        = Bartholomew; husband = married partner = Ferdinand; baby = newborn child =
        Rosalind
        """,
    ),
    _PlantedKind(
        "{who} still owes the bank {value} dollars for the {a}.",
        "How many dollars does {who} still owe the bank for the {a}?",
        "How much money must {who} pay back on the {b} loan?",
        """
        car = automobile = 4,350; house = home = 81,200; boat = yacht = 12,700; farm =
        ranch = 64,900; shop = store = 23,150; piano = instrument = 5,840; degree =
        university = 17,600; kitchen = cooking range = 9,480
        """,
    ),
    _PlantedKind(
        "{who} lets the nightly backup run on the machine {value}.",
        "On which machine does {who} let the nightly backup run?",
        "Which server copies {who}'s data overnight?",
        """
        pve-07; atlas-2; nas03; mox-11; krill-5; vault9; dune-14; opal-3
        """,
    ),
    _PlantedKind(
        "{who} replaced the {a} by {value} last quarter.",
        "By what did {who} replace the {a} last quarter?",
        "What is {who} using now rather than the {b}?",
        """
        spreadsheet = Excel table = a small database; cron job = scheduled task = a
        message queue; login form = sign-in page = a passkey; search box = query field =
        a voice prompt; pie chart = round diagram = a heat map; mailing list = group
        e-mail = a chat channel; fax machine = telecopier = a scanner; wall calendar =
        printed planner = a shared timetable
        """,
    ),
    _PlantedKind(
        "{who} has to hand in the {a} by {value}.",
        "By when does {who} have to hand in the {a}?",
        "What is the deadline for {who}'s {b}?",
        """
        thesis = dissertation = the twelfth of March; report = write-up = the twentieth
        of January; tax return = revenue declaration = the fifteenth of April;
        manuscript = book draft = the fourth of February; application = request for the
        job = the thirtieth of May; homework = school assignment = the day after
        tomorrow; slides = presentation = noon on Thursday; budget = spending plan = the
        end of the quarter
        """,
    ),
    _PlantedKind(
        "{who} always drinks {value} after dinner.",
        "What does {who} always drink after dinner?",
        "Which beverage does {who} have following the evening meal?",
        """
        peppermint tea; buttermilk; cherry juice; cold cocoa; tonic water; plum brandy;
        barley coffee; ginger beer
        """,
    ),
    _PlantedKind(
        "{who}'s plane to {a} leaves at {value}.",
        "At what time does {who}'s plane to {a} leave?",
        "When is the departure of {who}'s flight?",
        """
        Denver = twenty past six; Oslo = ten to nine; Lima = half past eleven; Cairo = a
        quarter to one; Seoul = five past two; Quito = twelve minutes to four; Perth = a
        quarter past seven; Delhi = eight minutes to ten
        """,
    ),
    _PlantedKind(
        "{who} painted the {a} {value}.",
        "In which shade has {who} painted the {a}?",
        "What colour are the walls of {who}'s {b} now?",
        """
        hallway = corridor = lime green; sitting room = lounge = dusty pink; shed =
        garden hut = navy blue; garage = carport = pale yellow; attic = loft = dark red;
        cellar = basement = ivory; toilet = bathroom = turquoise; nursery = children's
        bedroom = lavender
        """,
    ),
    _PlantedKind(
        "{who} broke a {a} while {value}.",
        "What was {who} doing while the {a} broke?",
        "How did the fracture of {who}'s {b} happen?",
        """
        wrist = hand bones = skating on the canal; collarbone = shoulder = climbing the
        cherry tree; rib = chest = cleaning the gutters; heel = foot = riding a mule;
        thumb = finger = chasing the bus; kneecap = leg = playing hockey; front tooth =
        incisor = opening a crate; shin = lower leg = mowing the lawn
        """,
    ),
    _PlantedKind(
        "{who}'s {a} starts at {value} in September.",
        "Where does {who}'s {a} start in September?",
        "Which school will {who}'s {b} attend?",
        """
        daughter = girl = Larkfield Primary; son = boy = Saint Brannock's; eldest =
        oldest child = the Linden Academy; youngest = smallest child = Hillcrest
        Montessori; nephew = brother's boy = Oak Lane College; niece = sister's girl =
        Queensmead Grammar; grandson = grandchild = the Harbour Lyceum; stepson = wife's
        boy = Rowan Hall
        """,
    ),
    _PlantedKind(
        "{who} was fired from {value} after the merger.",
        "Where was {who} fired from after the merger?",
        "Which firm dismissed {who}?",
        """
        Castor Logistics; Meridian Glass; Ludlow Textiles; Pinewood Insurance; Arden
        Chemicals; Tamar Shipping; Rowe Publishing; Quarry Bank
        """,
    ),
    _PlantedKind(
        "{who} has been scared of {value} since childhood.",
        "What has {who} been scared of since childhood?",
        "What frightens {who} the most?",
        """
        escalators; moths; thunder; clowns; deep water; dentists; needles; geese
        """,
    ),
    _PlantedKind(
        "{who} ordered a new {a} from {value}.",
        "From where did {who} order a new {a}?",
        "Which shop sold {who} the {b}?",
        """
        sofa = couch = Hobart's; laptop = notebook computer = Fenwick Electronics;
        wardrobe = closet = Lumen and Sons; television = TV set = the Depot; carpet =
        rug = Kessler; phone = mobile = Marlow Living; mattress = bed = Bright Barn;
        desk = writing table = Ostrava Trade
        """,
    ),
)
MAX_PLANTED: Final = sum(1 + kind.rows.count(";") for kind in _KINDS)
