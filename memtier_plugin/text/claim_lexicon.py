"""What a claim may add to its source or leave out, and what turns it round.  Pure data."""

from __future__ import annotations

from typing import Final

from memtier_plugin.text import grammar

CONDITIONALS: Final = grammar.word_set(
    "if unless whether wenn falls si se если indien 如果 假如 要是 もし"
)
POSSESSION_VERBS: Final = grammar.word_set(
    """have has had having got gotten ve own owns habe hat haben tengo tiene ai a ho ha tenho tem
        heb heeft 有"""
)
COPULAS: Final = grammar.word_set(
    """am is are was were be been being became become bin ist sind soy es estoy está suis est sono
        è sou é ben"""
)
ANTONYMS: Final = {
    one: other
    for pair in (
        "=like =dislike", "befor after", "=increase =decrease", "accept refus", "accept reject",
        "accept declin", "=above =below", "more less", "more fewer", "up down", "win lose",
        "=buy sell", "open close", "=begin =end", "start stop", "alway never", "first last",
        "gain lose", "enabl disabl", "allow forbid", "pass fail", "arriv leav", "hire fire",
        "import export", "older younger", "bigger smaller", "higher lower", "better worse",
        "push pull", "add remov", "left right", "north south", "east west", "morn even", "hot cold",
    )
    for one, other in (pair.split(), pair.split()[::-1])
}  # fmt: skip
OMISSIBLE: Final = grammar.word_set("""new little big small cute beautiful amazing great nice lovely
    wonderful good awesome lucky
    fantastic delicious sweet adorable gorgeous brilliant cool fun super happily named called alone
    together abroad lately kind sort awhile ever dear proud excited happy glad own neu
    neue neuen neues
    kleine kleinen nuevo nueva nouveau nouvelle petit petite nuovo nuova novo nova nieuwe новый
    новая новую please bitte folks guys everyone man dude""")
PRO_DROP: Final = frozenset(("spanish", "italian", "portuguese", "russian", "chinese", "japanese"))
# Words that count, but begin a phrase of their own: what stands before them is whole.
PHRASE_STARTERS: Final = frozenset(("before", "after", "since", "until", "from", "between"))
# Words that turn a statement the same way: what one of them says, another may report.
NONFACTUAL_CLASSES: Final = {
    word: one
    for one, words in {
        "future": "will shall going plan plans planning planned intend intends intending",
        "future-too": "werde wird werden voy va vou vai vais ga gaat буду будет",
        "wanted": "want wants wanted",
        "hoped": "hope hopes hoping hoped",
        "tried": "try tries trying tried",
        "needed": "need needs needed",
        "stopped": "stop stops stopped stopping quit quits",
        "no longer": "anymore longer",
        "avoided": "avoid avoids avoided avoiding",
        "refused": "refuse refuses refused",
        "considered": "consider considers considering considered",
    }.items()
    for word in words.split()
}
# Words that a report may add without saying more than its source.
REPORTING_WORDS: Final = grammar.word_set("""user person speaker named called say says said state
    states stated mention mentions mentioned report reports reported ask asks asked request requests
    requested want wants instruct instructs instructed note noted according currently now also age
    aged located remember""")
REQUEST_WORDS: Final = grammar.word_set("ask asks asked request requests requested want wants")

# People and animals: who may be the one a statement is about, when the speaker is not.
KINSHIP: Final = grammar.word_set("""wife husband partner fiance fiancé fiancée girlfriend boyfriend
    mom mum mother dad father sister brother sibling son daughter kid child grandma grandpa
    grandmother grandfather aunt uncle cousin nephew niece boss manager colleague coworker friend
    neighbor neighbour roommate flatmate dog cat puppy kitten pet horse rabbit hamster parrot team
    company teacher doctor landlord client customer twin baby parents parent family someone somebody
    everyone everybody people guy woman man girl boy lady student ex frau mann mutter vater
    schwester bruder sohn tochter freund freundin hund katze chef esposa esposo marido mujer madre
    padre hermana hermano hijo hija amigo amiga perro gato jefe femme mari mère père soeur sœur
    frère fils fille ami amie chien chat patron moglie marito sorella fratello figlio figlia amico
    amica cane gatto mãe pai irmã irmão filho filha namorada namorado zus broer moeder vader vriend
    vriendin жена муж мама папа мать отец сестра брат сын дочь друг подруга собака кошка кот""")
# Words that have an opposite or set a bound: they are content, not grammar.
POLAR: Final = grammar.word_set("""before after until since over under above below more less fewer
    least most up down off out
    only all every both always first last next half twice once nobody each another other by second
    third sometimes often from against between through never higher lower better worse bigger
    smaller older younger""")

# What is so in these is not so: a statement that they frame must name them.
FICTION_FRAMES: Final = grammar.word_set(
    """novel story stories game games movie film play song lyrics theory fiction book books dream
    dreams nightmare imagination scenario simulation roleplay character sims head mind fantasy show
    series poem sketch joke example hypothesis roman spiel traum theorie film buch novela juego
    sueño teoría libro roman jeu rêve théorie livre romanzo gioco sogno teoria libro romance jogo
    sonho livro roman spel droom theorie boek романе игре сне теории книге фильме"""
)
LOCATIVES: Final = grammar.word_set("in on at im in en dans nel nella no na em в во")
# Words that end a statement even from behind an "and".
CLAUSE_FINAL: Final = grammar.word_set("anymore longer until till bis hasta jusque kidding joking")
