"""What small words do to a statement: deny it, doubt it, end it, say whose it is.  Pure data.

For each language whose statements may be believed on the strength of their words: closed classes
of its grammar, and the common verbs that turn a statement round. A language that is not here is
taken at its word only (see ``agreement.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as a text."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class ClosedClasses:
    """The small words of one language.

    ``function_words`` may come and go; ``negations`` denies; ``first_person``, ``first_possessive``
    and ``third_person`` say whose a statement is; ``contrasts`` begins a new one. ``nonfactual``
    say that something is wished, doubted, planned, over, somebody else's word or only so under a
    condition: they must not get lost.
    """

    function_words: frozenset[str]
    negations: frozenset[str]
    first_person: frozenset[str]
    first_possessive: frozenset[str]
    second_person: frozenset[str]
    third_person: frozenset[str]
    contrasts: frozenset[str]
    nonfactual: frozenset[str]
    verb_endings: tuple[
        tuple[str, str], ...
    ] = ()  # endings of the first and the third person of verbs
    verb_forms: Mapping[str, str] = field(
        default_factory=dict
    )  # whole verbs, where endings do not do

    @property
    def common_words(self) -> frozenset[str]:
        """Words by which the language is known."""
        small = (
            self.function_words
            | self.negations
            | self.first_person
            | self.first_possessive
            | self.second_person
            | self.third_person
            | self.contrasts
        )
        return small | self.verb_forms.keys() | frozenset(self.verb_forms.values())


def _of(
    light: str, no: str, me: str, my: str, you: str, third: str, but: str, turns: str,
    ends: str = "", forms: str = "",
) -> ClosedClasses:  # fmt: skip
    a, b, c, d, e, f, g, h = map(word_set, (light, no, me, my, you, third, but, turns))
    pairs = [
        (one.strip("-"), other.strip("-"))
        for one, _, other in (p.partition(">") for p in ends.split())
    ]
    verbs = dict(form.split(">") for form in forms.split())
    return ClosedClasses(a, b, c, d, e, f, g, h, tuple(pairs), verbs)


_ENGLISH: Final = _of(
    """a an the this that these those am is are be been being 's do does did have has had having
    of in on at for with to into onto as and or there here it's who which whom whose what when
    where how just also really very so too quite actually currently now still already recently
    finally lately absolutely totally truly definitely certainly personally honestly simply
    especially particularly generally usually normally well anyway oh yes yeah yep ok okay hey hi
    hello thanks please lol haha btw fyi then than such same some any much many lot lots bit
    pretty super got get gets getting gotten ve re m ll d s going am was were even about
    around along during while today it its itself him""",
    """not no never none nobody nothing nowhere neither nor without cannot nope non hardly barely
    scarcely rarely seldom zero isnt arent dont doesnt didnt cant wont wasnt werent havent hasnt
    hadnt couldnt wouldnt shouldnt aint lack lacks lacking few little instead rather except
    minus""",
    "i we me us myself ourselves i'm i've",
    "my our mine ours",
    "you your yours yourself",
    "he she they him her them his hers their theirs it its himself herself themselves",
    "but however whereas although though yet while because except instead rather without unless",
    """if unless whether maybe perhaps might may could would should must possibly probably likely
    unlikely apparently supposedly allegedly presumably hopefully potentially theoretically
    hypothetically almost nearly seem seems seemed appear appears guess think thinks thought
    believe believes believed suppose supposed assume wonder wondering doubt hope hopes hoping
    hoped wish wishes wished dream dreams dreamed dreaming imagine imagined pretend pretended
    joke joking joked kidding fake rumor rumour consider considering considered want wants wanted
    wanna need needs needed try tries tried trying attempt attempted plan plans planned planning
    intend intends will shall gonna stop stops stopped stopping quit quits cease used former
    formerly ex previously anymore longer sold lost broke cancel canceled cancelled postponed
    fail fails failed refuse refuses refused avoid avoids avoided avoiding deny denies denied
    decline declined declines reject rejected rejects miss missed skip skipped forget forgot
    forgotten unable impossible prevent prevented forbid forbidden banned said say says saying
    claim claims claimed told tell tells heard hear according until till only far if-only sure
    tempted reluctant hesitate hesitant afraid stolen broken returned supposedly so-called instead
    rather shouldn mustn ought meant someday unlike""",
)
_GERMAN: Final = _of(
    """der die das den dem des ein eine einen einem einer eines und oder ist sind bin bist sein
    seid habe hab hat haben hast in im an am auf bei mit zu zum zur von vom für als auch sehr ja
    noch schon gerade jetzt derzeit momentan eigentlich wirklich ganz so da dort hier es sich aus
    um nach man dass wie seit ab mal halt eben doch gern gerne total besonders endlich übrigens
    jahr jahre jahren alt heißt heiße""",
    """nicht kein keine keinen keinem keiner keines nie niemals nirgends ohne weder nichts niemand
    kaum selten ausser außer statt""",
    "ich wir mich mir uns",
    "mein meine meinen meinem meiner meines unser unsere unseren unserem unserer",
    "du dich dir dein deine deinen ihr euch",
    "er sie ihn ihm ihr ihre ihren ihrem ihrer sein seine seinen seinem seiner ihnen",
    "aber sondern jedoch obwohl weil denn während außer ohne statt",
    """wenn falls ob vielleicht möglicherweise wahrscheinlich angeblich vermutlich könnte könnten
    würde würden möchte möchten möchtest will wollen wollte wollten soll sollte sollen muss musste
    müsste dürfte fast beinahe wünsche wünscht wünschte hoffe hofft glaube glaubt denke denkt
    meint meine-n scheint plane plant versuche versucht aufgehört aufhören früher ehemalig
    ehemalige ehemaliger damals war waren hatte hatten wäre hätte hätten mehr vermeide vermeidet
    vermeiden weigere weigert verkauft verloren sagt sagte gesagt behauptet bis nur werde wird
    werden scherz spaß träume träumt einst""",
    "-e>-t -e>-et -te>-te",
    """esse>isst lese>liest fahre>fährt spreche>spricht sehe>sieht nehme>nimmt gebe>gibt
        treffe>trifft
    helfe>hilft schlafe>schläft laufe>läuft trage>trägt weiß>weiß kann>kann mag>mag trinke>trinkt
    spiele>spielt lerne>lernt kaufe>kauft wohne>wohnt arbeite>arbeitet gehe>geht komme>kommt""",
)
_SPANISH: Final = _of(
    """el la los las un una unos unas de del al a en con por para y e o u que es son eres ser
    está están ha han haber tiene tienen se lo le les muy también ya ahora
    actualmente realmente aquí allí este esta esto eso ese esa bastante mucho mucha
    además sí bueno pues así años año""",
    "no nunca jamás nadie nada ningún ninguna ninguno ni sin tampoco apenas excepto salvo",
    "yo me mí nosotros nosotras nos conmigo soy estoy he tengo somos tenemos",
    "mi mis mío mía nuestro nuestra nuestros nuestras",
    "tú te ti tu tus usted ustedes vosotros",
    "él ella ellos ellas su sus suyo suya le les",
    "pero sino aunque porque mientras excepto salvo sin",
    """si quizá quizás tal-vez acaso probablemente posiblemente supuestamente podría podrían
    debería gustaría querría quiero quiere quería casi creo cree creía pienso piensa espero espera
    ojalá deseo desea parece sueño sueña intento intenta plan planeo planea voy va vamos dejé dejó
    deja dejar dejado antes era eran fue tenía había sería ya-no solía evito evita niego niega
    rechazo rechaza vendí vendió perdí perdió dice dicen dijo dijeron hasta solo sólo broma finjo
    finge""",
    "-o>-a -o>-e -é>-ó -í>-ió -ía>-ía -aba>-aba -ré>-rá",
    """como>come bebo>bebe vivo>vive trabajo>trabaja hablo>habla juego>juega leo>lee compro>compra
    conozco>conoce puedo>puede prefiero>prefiere hago>hace salgo>sale pongo>pone sé>sabe fui>fue
    hice>hizo tuve>tuvo estuve>estuvo vine>vino puse>puso duermo>duerme""",
)
_FRENCH: Final = _of(
    """le la les l un une des de du d à au aux en dans avec pour par sur chez et ou où que qu est
    suis sont es être ai a ont as avoir c ce cet cette ces il-y très aussi déjà maintenant
    actuellement vraiment comme ici là y s se j n bien assez beaucoup trop enfin oui alors
    ans an appelle""",
    """ne n pas jamais rien personne aucun aucune ni sans guère nulle sauf""",
    "je j me m moi nous",
    "mon ma mes nôtre notre nos mien mienne",
    "tu te t toi ton ta tes vous votre vos",
    "il elle ils elles lui leur leurs son sa ses eux",
    "mais cependant pourtant parce quoique tandis sauf sans",
    """si peut-être probablement apparemment soi-disant pourrait pourrais devrait devrais voudrais
    voudrait aimerais aimerait veux veut voulais presque crois croit pense pensait espère souhaite
    semble rêve imagine essaie essaye prévois prévoit compte vais va allons arrêté arrête cessé
    ancien ancienne autrefois avant étais était avais avait serait serais aurais aurait plus évite
    refuse refusé nie vendu perdu dit disent disait jusqu jusque seulement blague plaisante""",
    "-s>-t -ais>-ait -ds>-d -ons>-e -x>-t",
    """mange>mange bois>boit habite>habite travaille>travaille parle>parle joue>joue lis>lit
    achète>achète connais>connaît peux>peut préfère>préfère fais>fait sais>sait prends>prend
    viens>vient dors>dort écris>écrit""",
)
_ITALIAN: Final = _of(
    """il lo la i gli le l un uno una di del della dei delle a al alla ai in nel nella con per su da
    dal dalla e ed o che è sei essere sta ha hanno hai avere si molto anche già ora
    adesso davvero come qui lì questo questa ci ne anni anno sì""",
    "non no mai nessuno nessuna niente nulla né senza neanche nemmeno tranne eccetto",
    "io me mi noi sono sto ho abbiamo siamo",
    "mio mia miei mie nostro nostra nostri nostre",
    "tu te ti tuo tua tuoi tue voi vostro",
    "lui lei loro suo sua suoi sue egli ella",
    "ma però perché mentre sebbene tranne senza",
    """se forse probabilmente magari potrebbe potrei dovrei dovrebbe vorrei vorrebbe voglio vuole
    quasi credo crede penso pensa spero spera sembra sogno sogna provo prova cerco cerca vado va
    smesso smetto smette prima ero era erano avevo aveva sarebbe più evito evita rifiuto rifiuta
    venduto perso dice dicono detto fino solo soltanto scherzo""",
    "-o>-a -o>-e -ai>-ò -ei>-é -ii>-ì -avo>-ava -evo>-eva -ivo>-iva -sco>-sce",
    """mangio>mangia bevo>beve vivo>vive lavoro>lavora parlo>parla gioco>gioca leggo>legge
    compro>compra conosco>conosce posso>può preferisco>preferisce faccio>fa so>sa vengo>viene
    abito>abita dormo>dorme""",
)
_PORTUGUESE: Final = _of(
    """o a os as um uma uns umas de do da dos das em no na nos nas com por para e ou que é são
    ser está estão tem têm ter se ao à muito também já agora atualmente realmente
    como aqui ali este esta isso isto bem bastante anos ano sim""",
    "não nunca jamais ninguém nada nenhum nenhuma nem sem tampouco exceto",
    "eu me mim nós comigo sou estou tenho temos somos",
    "meu minha meus minhas nosso nossa nossos nossas",
    "tu te você vocês teu tua seu-s",
    "ele ela eles elas seu sua seus suas dele dela lhe",
    "mas porém porque embora enquanto exceto sem",
    """se talvez provavelmente possivelmente poderia deveria gostaria queria quero quer quase acho
    acha acredito acredita penso pensa espero espera parece sonho sonha tento tenta planejo planeja
    vou vai vamos parei parou deixei deixou antes era eram tinha havia seria mais costumava evito
    evita recuso recusa vendi vendeu perdi perdeu diz dizem disse até só somente brincadeira""",
    "-o>-a -o>-e -ei>-ou -i>-eu -i>-iu -ava>-ava -ia>-ia",
    """como>come bebo>bebe moro>mora trabalho>trabalha falo>fala jogo>joga leio>lê compro>compra
    conheço>conhece posso>pode prefiro>prefere faço>faz sei>sabe venho>vem durmo>dorme fui>foi
    fiz>fez tive>teve""",
)
_DUTCH: Final = _of(
    """de het een en of is ben zijn bent heb heeft hebben hebt in op aan bij met te tot van voor als
    ook heel erg nog al nu momenteel echt zo daar hier dat die er om naar uit ja gewoon wel
    jaar oud""",
    "niet geen nooit niemand niets nergens zonder noch nauwelijks zelden behalve",
    "ik wij we mij me ons",
    "mijn onze ons",
    "jij je jou jouw jullie",
    "hij zij ze hem haar hun zijn",
    "maar echter omdat terwijl hoewel behalve zonder",
    """als-je indien misschien waarschijnlijk mogelijk zou zouden kon wil willen wilde bijna denk
    denkt geloof gelooft hoop hoopt wens lijkt droom probeer probeert ga gaat gestopt stopt stop
    vroeger voormalig was waren had hadden meer vermijd vermijdt weiger weigert verkocht verloren
    zegt zei zeggen alleen slechts grapje zal zullen moet moest""",
    "-d>-dt",
    """eet>eet drink>drinkt woon>woont werk>werkt spreek>spreekt speel>speelt lees>leest koop>koopt
    ken>kent kan>kan doe>doet ga>gaat kom>komt slaap>slaapt schrijf>schrijft leer>leert
    rijd>rijdt""",
)
_RUSSIAN: Final = _of(
    """и а в во на с со к ко из от до по о об за для у же это этот эта то что как так там тут здесь
    очень тоже также уже ещё еще сейчас теперь просто действительно вот да есть бы-л который лет
    год года""",
    "не нет никогда ничего никто нигде ни без нельзя едва кроме",
    "я мы меня мне мной нас нам",
    "мой моя моё мое мои моего моей моих наш наша наше наши",
    "ты тебя тебе твой твоя вы вас вам ваш ваша",
    "он она они его её ее ему ей их им него неё нее",
    "но однако хотя потому зато кроме без",
    """если может возможно наверное вероятно якобы кажется будто почти думаю думает считаю считает
    надеюсь надеется хочу хочет хотел хотела хотелось бы мечтаю мечтает пытаюсь пытается планирую
    планирует собираюсь собирается буду будет бросил бросила перестал перестала раньше прежде был
    была было были больше бывший бывшая избегаю избегает отказываюсь отказывается продал продала
    потерял потеряла говорит говорят сказал сказала только шучу шутка пока должен должна""",
    "-ю>-ет -у>-ет -ю>-ит -ю>-ёт -у>-ёт -у>-ит -юсь>-ется -усь>-ется -юсь>-ится -аю>-ает -лю>-ит",
    """ем>ест пью>пьёт хожу>ходит могу>может иду>идёт еду>едет пишу>пишет вижу>видит ношу>носит
    плачу>платит люблю>любит живу>живёт работаю>работает играю>играет читаю>читает учу>учит
    знаю>знает говорю>говорит сплю>спит езжу>ездит""",
)
_CHINESE: Final = _of(
    """的 了 是 在 和 与 也 都 很 就 这 那 个 有 地 得 着 吗 呢 吧 啊 把 被 对 给 从 到 一 最
    非常 现在 已经""",
    "不 没 別 别 无 未 非 勿 从不 從不 沒 無 莫 戒 除 免",
    "我 我们 咱",
    "我的",
    "你 您 你们",
    "他 她 它 他们 她们",
    "但 但是 可是 不过 而 因为 所以 虽然",
    """如果 假如 要是 可能 也许 或许 大概 应该 想 要 希望 打算 准备 计划 差点 几乎 以为 觉得 听说
        据说 说 拒绝 停 曾
    以前 过去 之前 本来 原来 梦 假装 开玩笑 会 只 试 避 忘 卖 丢 再 像 愿 认为 取消 放弃""",
)
_JAPANESE: Final = _of(
    """の は が を に で と も へ や から まで です ます だ である ある いる とても 今 もう まだ
    さん ね よ""",
    "ない ません なかった ず ぬ じゃな ではな 無 非 不 未 なく なし まい",
    "私 僕 俺 わたし ぼく 私たち",
    "私の 僕の",
    "あなた 君",
    "彼 彼女 彼ら",
    "が、 けど けれど しかし でも だが",
    """もし たら れば かもしれ たい つもり 予定 だろう でしょう らしい そうだ ようだ みたい と思
        思い 思う 思っ と言 言い
    言う 言っ やめ 止め 以前 昔 かつて 元 嘘 冗談 夢 欲し ほし だけ しか 断 避 忘 売っ 失 以外
    はず べき 前は てい た""",
)

CLOSED_CLASSES: Final[Mapping[str, ClosedClasses]] = {
    "english": _ENGLISH,
    "german": _GERMAN,
    "spanish": _SPANISH,
    "french": _FRENCH,
    "italian": _ITALIAN,
    "portuguese": _PORTUGUESE,
    "dutch": _DUTCH,
    "russian": _RUSSIAN,
    "chinese": _CHINESE,
    "japanese": _JAPANESE,
}

# What joins two things, or two statements.
COORDINATORS: Final[Mapping[str, frozenset[str]]] = {
    "english": word_set("and or nor plus"),
    "german": word_set("und oder"),
    "spanish": word_set("y e o u"),
    "french": word_set("et ou"),
    "italian": word_set("e ed o"),
    "portuguese": word_set("e ou"),
    "dutch": word_set("en of"),
    "russian": word_set("и или"),
}

# Words that say the same of a person, in any of the languages, by what they say. A fact in other
# words, or in another language, is held to these; everything else must be the source's own word.
_SAME: Final = {
    "live": "live lives living lived reside resides residing based wohne wohnt wohnen lebe lebt"
            " vivo vive vivimos habite habitons abito abita moro mora woon woont живу живёт"
            " живет 住",
    "work": "work works working worked employed job arbeite arbeitet arbeiten trabajo trabaja"
            " travaille lavoro lavora trabalho trabalha werk werkt работаю работает",
    "like": "like likes liked liking love loves loved enjoy enjoys enjoyed adore adores fond fan"
            " loving enjoying mag liebe liebt gefällt encanta gusta amo ama aime adore люблю любит"
            " нравится",
    "dislike": "dislike dislikes disliked hate hates hated detest detests loathe loathes despise"
               " despises hasse hasst odio odia déteste odeio odeia haat ненавижу ненавидит",
    "allergic": "allergic allergy allergies allergisch allergie alérgico alérgica alergia"
                " allergique allergico allergica allergia alérgica аллергия аллергии",
    "since": "since seit desde depuis dal sinds",
    "buy": "buy buys bought buying purchase purchased purchases purchasing",
    "own": "own owns owned",
    "child": "child children kid kids",
    "mother": "mother mom mum mommy mama",
    "father": "father dad daddy papa",
    "begin": "begin begins began begun start starts started starting beginning",
    "end": "finish finished finishes complete completed completes completing finishing",
    "speak": "speak speaks spoke speaking",
    "vegetarian": "vegetarian vegetarianism vegetarier vegetarierin vegetariano vegetariana"
                  " végétarien végétarienne вегетарианец вегетарианка",
    "vegan": "vegan veganer veganerin vegano vegana végétalien",
    "favourite": "favorite favourite favorit",
    "colour": "color colour colors colours",
    "study": "study studies studied studying",
    "marry": "marry marries married marrying",
    "job": "occupation profession",
    "apartment": "apartment flat",
    "movie": "movie movies film films",
    "phone": "phone telephone",
    "bike": "bike bicycle bikes bicycles",
    "photo": "photo photos photograph photographs picture pictures",
    "repair": "repair repairs repaired fix fixes fixed",
    "increase": "increase increases increased increasing",
    "decrease": "decrease decreases decreased decreasing reduce reduces reduced",
    "above": "above over",
    "below": "below under",
}  # fmt: skip
_BY_WORD: Final = {
    word: f"={meaning}" for meaning, words in _SAME.items() for word in words.split()
}

# The forms of English verbs that no stemmer brings together, the past ones after the bar.
_VERBS: Final = """
    go goes going|went gone; eat eats eating|ate eaten; see sees seeing|saw seen; take takes
    taking|took taken; give gives giving|gave given; get gets getting|got gotten; make makes
    making|made; come comes coming|came; know knows knowing|knew known; buy buys buying|bought;
    drive drives driving|drove driven; write writes writing|wrote written; run runs running|ran;
    speak speaks speaking|spoke spoken; teach teaches teaching|taught; sell sells selling|sold;
    leave leaves leaving|left; find finds finding|found; meet meets meeting|met; win wins
    winning|won; lose loses losing|lost; build builds building|built; sleep sleeps sleeping|slept;
    drink drinks drinking|drank drunk; swim swims swimming|swam swum; fly flies flying|flew flown;
    begin begins beginning|began begun; break breaks breaking|broke broken; choose chooses
    choosing|chose chosen; keep keeps keeping|kept; hold holds holding|held; spend spends
    spending|spent; send sends sending|sent; pay pays paying|paid; grow grows growing|grew grown;
    wear wears wearing|wore worn; become becomes becoming|became; tell tells telling|told; think
    thinks thinking|thought; feel feels feeling|felt; bring brings bringing|brought; catch catches
    catching|caught; sing sings singing|sang sung; ride rides riding|rode ridden; draw draws
    drawing|drew drawn; fall falls falling|fell fallen; lead leads leading|led; stand stands
    standing|stood; sit sits sitting|sat; hear hears hearing|heard; say says saying|said; forget
    forgets forgetting|forgot forgotten; break breaks breaking|broke broken; hurt hurts; quit;
    set sets setting; read reads reading; put puts putting; cut cuts cutting; cost costs
"""
# More words by which English is known, since most claims are in it and short.
ENGLISH_HINTS: Final = word_set("""like likes love loves hate hates live lives lived work works
    worked turned moved started since before after yesterday tomorrow every always never home city
    favorite favourite allergic name sister brother mother father wife husband friend dog cat says
    said asks prefers prefer uses use used new from over until old server version run runs because
    not when only""")
# Denials of languages that are not here, which a short text must not hide.
FOREIGN_NEGATIONS: Final = word_set("""nie nigdy inte ikke ikkje aldrig aldri ej ei en et emme nem
    ne nu não tidak bukan hindi wala walang hapana si değil yok nikdy nikad nikada mai asnjë nuk ez
    inga""")


@cache
def irregular_verbs() -> tuple[Mapping[str, str], frozenset[str]]:
    """Return the lemma of each form of the irregular English verbs, and which forms are past."""
    lemmas: dict[str, str] = {}
    past: set[str] = set()
    for line in " ".join(_VERBS.split()).split(";"):
        now, _, then = line.partition("|")
        lemma, *_ = now.split()
        for form in [*now.split(), *then.split()]:
            lemmas[form] = lemma
        past.update(then.split())
    return lemmas, frozenset(past)


def synonym_key(word: str) -> str | None:
    """Return what stands for all words that say the same, or None for a word by itself."""
    return _BY_WORD.get(word)
