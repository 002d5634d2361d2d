"""Templates of kinds that the code was not written against, and right claims in other words.

A paraphrase says in words of its own what was said, and quotes it exactly, as a good model would.
"""

# ruff: noqa: E501 (a template stands on one line, to be read across)

from __future__ import annotations

from tests.facts.claims import right, wrong

PARAPHRASED = (
    right("I live in {city}.", "{me} resides in {city}.", "{city}", "lives_in", kind="synonym"),
    right("I'm allergic to {food}.", "{me} has an allergy to {food}.", "{food}", "allergic_to", kind="noun for adjective"),
    right("My job is {job}.", "{me} works as a {job}.", "{job}", "works_as", kind="other construction"),
    right("I work for {firm}.", "{me} is employed by {firm}.", "{firm}", "works_at", kind="passive"),
    right("My {kin} {friend} works at {firm}.", "{friend}, {me}'s {kin}, works at {firm}.", "{firm}", "works_at", subject="{friend}", kind="apposition"),
    right("I bought a {thing} last week.", "Last week {me} bought a {thing}.", "{thing}", "bought", kind="order"),
    right("I love {band}.", "{me} is fond of {band}.", "{band}", "likes", kind="synonym"),
    right("I can't stand {food}.", "{me} hates {food}.", "{food}", "dislikes", kind="synonym"),
    right("{friend} is my {kin}.", "{me}'s {kin} is called {friend}.", "{friend}", "name", subject="{me}'s {kin}", kind="other construction"),
    right("We use {tool} for our metrics.", "{tool} is used for metrics.", "{tool}", "uses", subject="{tool}", kind="passive"),
    right("The {host} listens on port 8443.", "The {host} runs on port 8443.", "8443", "runs_on_port", subject="{host}", kind="synonym"),
    right("My wedding is on 12 August 2023.", "{me} gets married on 12 August 2023.", "12 August 2023", "scheduled_for", kind="verb for noun"),
    right("I have two kids.", "{me} has 2 children.", "2 children", "has", kind="synonym"),
    right("I moved to {city} in 2019.", "{me} has lived in {city} since 2019.", "{city}", "lives_in", kind="inference"),
    right("I gave up smoking in 2021.", "{me} stopped smoking in 2021.", "smoking", "stopped", kind="synonym"),
    right("I play the {instrument} in an orchestra.", "{me} plays the {instrument}.", "{instrument}", "plays", kind="shortened"),
    right("I'm a vegetarian.", "{me} is vegetarian.", "vegetarian", "diet", kind="noun for adjective"),
    right("My dog is called {pet}.", "{me} has a dog named {pet}.", "{pet}", "has", kind="other construction"),
    right("I was born in 1984 in {city}.", "{me} was born in {city} in 1984.", "{city}", "born", kind="order"),
    right("The meeting starts at 3 pm.", "The meeting begins at 15:00.", "15:00", "scheduled_for", subject="meeting", kind="synonym"),
)  # fmt: skip

WRONG = (
    wrong("owner for user", "{friend} owns the {host}; I only use it.", "{me} owns the {host}.", "{host}", "owns the {host}"),
    wrong("cause for effect", "I moved to {city} because of my {kin}.", "{me}'s {kin} moved to {city}.", "{city}", subject="{me}'s {kin}"),
    wrong("part for all", "Some of our servers run {tool}.", "All of {me}'s servers run {tool}.", "{tool}", subject="{me}'s servers"),
    wrong("offer for fact", "{firm} offered me a job.", "{me} works at {firm}.", "{firm}"),
    wrong("attempt for success", "I tried to learn the {instrument}.", "{me} learned the {instrument}.", "{instrument}"),
    wrong("advice for habit", "My doctor says I should avoid {food}.", "{me} avoids {food}.", "{food}"),
    wrong("rumour", "Rumour has it that {firm} moves to {city}.", "{firm} moves to {city}.", "{city}", "{firm} moves to {city}", subject="{firm}"),
    wrong("comparison for place", "{city} is bigger than {other_city}.", "{other_city} is bigger than {city}.", "bigger than {city}", subject="{other_city}"),
    wrong("sender for receiver", "I sent the {thing} to {friend}.", "{friend} sent the {thing} to {me}.", "{thing}", subject="{friend}"),
    wrong("first for last", "My first employer was {firm}.", "{me}'s last employer was {firm}.", "{firm}", subject="{me}'s last employer"),
    wrong("old for new", "My old {thing} was from {firm}.", "{me}'s new {thing} is from {firm}.", "{firm}", subject="{me}'s new {thing}"),
    wrong("exception lost", "I eat everything except {food}.", "{me} eats {food}.", "{food}"),
    wrong("only lost", "Only {friend} may push to {branch}.", "{me} may push to {branch}.", "push to {branch}"),
    wrong("unless lost", "I take the train unless it rains.", "{me} takes the train when it rains.", "train"),
    wrong("question with an answer", "Am I allergic to {food}? No.", "{me} is allergic to {food}.", "{food}", "Am I allergic to {food}"),
    wrong("sarcasm marked", "Yeah right, as if I lived in {city}.", "{me} lives in {city}.", "{city}", "I lived in {city}"),
    wrong("dream", "Last night I dreamt that I owned a {thing}.", "{me} owns a {thing}.", "{thing}", "I owned a {thing}"),
    wrong("price for amount", "The {thing} costs 300 euros a month.", "{me} bought 300 {thing}s.", "300"),
    wrong("from for to", "My flight from {city} lands at 9.", "{me}'s flight to {city} lands at 9.", "{city}", subject="{me}'s flight"),
    wrong("week for day", "The backup runs every week.", "The backup runs every day.", "every day", subject="backup"),
    wrong("minimum for value", "You need at least 16 GB for the {host}.", "The {host} has 16 GB.", "16 GB", subject="{host}"),
    wrong("cancelled", "My appointment with {friend} on 3 May is off.", "{me} has an appointment with {friend} on 3 May.", "3 May"),
    wrong("returned", "I sent the {thing} back.", "{me} kept the {thing}.", "{thing}"),
    wrong("used to, in a clause", "The {host}, which used to run {tool}, is gone.", "The {host} runs {tool}.", "{tool}", "run {tool}", subject="{host}"),
    wrong("candidate for choice", "We are choosing between {tool} and Kafka.", "{me} chose {tool}.", "{tool}"),
)  # fmt: skip
