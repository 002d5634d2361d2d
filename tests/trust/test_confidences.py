"""What is told in confidence, and what only sounds so: by classes of wording, in each language."""

from __future__ import annotations

import time

from memtier_plugin.core.records import Role
from memtier_plugin.trust.confidences import (
    Confidence,
    confided_entries,
    find_confidence,
    may_be_confided,
)
from tests.builders import make_entry
from tests.cases import each_case

CONFIDED = """
Off the record. We work with Brenner.
Off the record. Remember that the buyer is Voss.
Off the record, my brother is called Tadeusz.
Off the record: the depot moves to Kassel.
This is just for you: I'm interviewing elsewhere.
Keep it under your hat, but the merger is off.
Don't breathe a word of this: Tom and I are splitting up.
I'd appreciate your discretion here. I have been summoned to court.
Not a word to the team, but the project will be cancelled.
I haven't told my parents, but I dropped out of university.
Nobody at work knows that I have epilepsy.
My lips are sealed normally, but Kim is leaving.
Mum's the word: we are buying the house next door.
On the down low, I sold my shares.
Please keep this between you and me, my visa was refused.
You didn't hear this from me, but Anna gets the job.
I'm telling you this in strict confidence: the audit failed.
This has to stay between us: I lied on my CV.
What I'm about to tell you stays here. I have a gambling problem.
My boss must never find out that I slept through the alarm.
It's not public yet, but we raised five million.
Under NDA: Apple is our customer.
I'm secretly dating my neighbour.
Don't let this get out, the CEO is ill.
If my wife finds out about this, she will kill me: I bought a motorbike.
I could lose my job for telling you, the data was leaked in April.
Confidential: the plant in Lyon closes in May.
I'm not supposed to say this, but the bonus is cancelled.
He asked me not to tell anyone: he's being treated for alcoholism.
Can I trust you? I stole the money.
Please be discreet. I am looking for a new flat.
Let's keep this quiet: I'm thinking of leaving my husband.
I want this kept private. I'm on antidepressants.
Never repeat this to anyone: Robert forged the signature.
You're the only person I've told. I'm seeing someone.
It's a secret, but we eloped in June.
Please treat this confidentially, the client is insolvent.
This must not leave this room: we are out of cash.
Nobody else needs to know, but I had a miscarriage.
This goes no further: the tests were faked.
Don't put this in any notes. My son was arrested.
Shh, Peter gets a surprise trip to Vienna.
I don't want anyone to know that I wear a wig.
Just between ourselves, I can't stand the new manager.
Only you know this: I'm the father.
For your ears only: I'm moving out on Friday.
That's private, but I was adopted in 1980.
Promise you won't tell: I crashed the car.
Swear you'll keep it to yourself. I quit yesterday.
She told me in confidence that she's pregnant.
Sssh, don't mention it to Sarah, but her party is on Sunday.
My secret nickname for the boss is Moose.
Mein geheimer Spitzname für den Chef ist Elch.
Mi apodo secreto para el jefe es Alce.
Mon surnom secret pour le patron est Élan.
Il mio soprannome segreto per il capo è Alce.
O meu apelido secreto para o chefe é Alce.
Mijn geheime bijnaam voor de baas is Eland.
Моё тайное прозвище для начальника - Лось.
This info is strictly confidential. The price is 40 a share.
The following is confidential. Our runway is two months.
Unter uns gesagt: Der Vertrag wird nicht verlängert.
Erzähl das bitte keinem, aber ich war im Gefängnis.
Behalte das für dich: Die Filiale wird geschlossen.
Das darf niemand erfahren, ich habe die Prüfung nicht bestanden.
Im Vertrauen, mein Chef trinkt.
Streng vertraulich: Wir übernehmen die Firma Kranz.
Ich habe es meiner Frau noch nicht gesagt, aber ich bin arbeitslos.
Kein Wort zu den Kollegen: Ich ziehe nach Wien.
Sag es bloß nicht weiter, ich bin schwanger.
Das muss unter uns bleiben. Ich habe Schulden.
Psst, wir planen eine Überraschungsfeier für Oma.
Häng es nicht an die große Glocke, aber ich habe gekündigt.
Niemand weiß davon: Ich nehme Tabletten gegen Angst.
Eigentlich dürfte ich das nicht sagen, aber das Werk wird verkauft.
Wenn das rauskommt, bin ich meinen Job los: Ich habe die Daten gelöscht.
Bitte nicht weitersagen: Die Preise steigen im Mai.
Kannst du ein Geheimnis für dich behalten? Ich bin adoptiert.
Das ist vertraulich. Mein Gehalt beträgt 5000 Euro.
Meine Kollegin hat Krebs, sie möchte nicht, dass es jemand weiß.
Que quede entre nosotros: me voy de la empresa.
Esto es confidencial: cerramos la tienda en mayo.
No le cuentes a nadie que estoy embarazada.
Guárdame el secreto, me caso en junio.
Nadie debe saberlo, pero perdí el dinero.
En confianza, mi jefe tiene problemas con el alcohol.
Mi mujer no lo sabe todavía: me despidieron ayer.
Por favor, sé discreto. Tengo VIH.
No lo comentes con el equipo, he pedido el traslado.
Te lo digo en secreto: van a vender la fábrica.
Ni una palabra a mis padres, suspendí el examen.
Si se enteran, me echan: borré los registros.
Entre nous, je vais quitter mon mari.
Garde ça pour toi : l'usine va fermer.
Ne le dis à personne, je suis enceinte.
N'en parle pas aux collègues, j'ai trouvé un autre poste.
Ça reste entre nous, mon fils est en prison.
C'est confidentiel : nous rachetons la société Morel.
Personne ne doit le savoir, j'ai perdu mon permis.
Je ne l'ai pas encore dit à ma femme, mais j'ai été licencié.
Je te fais confiance, je prends des antidépresseurs.
Motus et bouche cousue, la fête surprise est samedi.
En toute confidentialité, le prix est de trois millions.
Peux-tu garder un secret ? Je suis malade.
Si ça se sait, je perds mon travail : j'ai falsifié le rapport.
这是我们之间的秘密：我要离婚了。
请保密，公司下个月裁员。
不要跟同事说，我找到新工作了。
这事千万别说出去，我怀孕了。
我还没告诉我老婆，我失业了。
只有你知道，我欠了很多钱。
偷偷告诉你，老板要走了。
这个别外传：我们被收购了。
没有人知道我在吃药。
我不想让别人知道我得了癌症。
本来不该说的，但是工厂要关了。
如果被人知道我就完了，我改了数据。
你能保守秘密吗？我是领养的。
私下跟你说，我想辞职。
到此为止，别让我妈知道我挂科了。
Che resti tra noi: lascio il lavoro.
Non dirlo a nessuno, sono incinta.
Nessuno deve saperlo: ho perso i soldi.
Fica entre nós: vou pedir demissão.
Não contes a ninguém que estou doente.
Ninguém pode saber, perdi o dinheiro.
Onder ons gezegd: ik neem ontslag.
Vertel het aan niemand, ik ben zwanger.
Dit blijft onder ons. Ik heb schulden.
Между нами, я увольняюсь в мае.
Никому не говори, я беременна.
Никто не должен знать, что я болен.
ここだけの話、会社を辞めます。
誰にも言わないで、妊娠しています。
これは内緒にしてね。引っ越します。
""".strip().splitlines()

# Words of secrecy that keep nothing secret, and orders to tell, or not to do, something.
OPEN = """
The private repository is at git.example.com/acme.
Our secret manager rotates keys every 30 days.
We use confidential computing on Azure.
The private key must be kept in the vault.
Secrets are stored in Vault.
The difference between us and them is the price.
Between the two offices there is a VPN.
We split the cost between us.
Share this folder with the team, please.
Tell everyone that the release moved to Friday.
Don't tell me the answer yet.
Don't share the staging database with production.
Never commit secrets to the repository.
The trust store is in /etc/ssl.
I trust the new CI runner.
The record label is called Off Beat.
Please keep the private channel #ops open.
The API is private.
The secret to good bread is time.
My secret key is rotated by the vault every month.
My secret ingredient is cardamom.
Mein geheimer Schlüssel liegt im Tresor.
Mi clave secreta está en el llavero.
Ma clé secrète est dans le coffre.
I told my team about the outage.
I told my boss that I will be on leave in May.
I have not told you my name: it's Ann.
Our privacy policy was updated in March.
The eyes of the new camera are red.
I can keep a straight face.
Nobody knows why the build fails.
I don't know yet which port it uses.
Don't mention the war.
Never tell jokes in commit messages.
Keep it short, and never use emojis.
Keep this in mind: the port is 8443.
If you find out the port, tell me.
The embargo on steel was lifted in 2019.
The team doesn't know Rust.
My brother works for the secret police museum.
The surprise was that the tests passed.
Only you and Ben have access to production.
The trust fund is managed by Ella.
Access is on private networks only.
Don't let the queue grow over 1000.
Remember this: the standup is at nine.
Quiet mode is enabled with -q.
I promised to tell you when the release is out.
Don't write to the disk in tests.
The mother of our CTO lives in Rome.
Das private Repository heißt acme-core.
Unter uns wohnt eine Familie aus Kiel.
Der Geheimtipp ist das Café Rosa.
Unsere Vertraulichkeitserklärung liegt im Intranet.
Sag allen, dass das Treffen am Montag ist.
Zwischen uns und dem Kunden liegt ein Vertrag.
Niemand weiß, warum der Test fehlschlägt.
Sag mir bitte den Port.
Der geheime Schlüssel liegt im Tresor.
Ich vertraue dem neuen Anbieter.
Entre nosotros y el río hay un camino.
El repositorio privado se llama acme.
Dile a todos que la reunión es el lunes.
Nadie sabe por qué falla la prueba.
La clave secreta está en el llavero.
No digas palabrotas en los comentarios.
Entre nous et la mer il y a une route.
Le dépôt privé s'appelle acme.
Dis à tout le monde que la réunion est lundi.
Personne ne sait pourquoi le test échoue.
La clé secrète est dans le coffre.
Le réseau privé est 10.0.0.0/8.
私有仓库在 git.example.com。
我们之间的距离是五公里。
请告诉大家会议改到周一。
密钥保存在保险库里。
没人知道为什么测试失败。
这个秘钥管理器叫 Vault。
我告诉我老婆六点出发。
我特别是喜欢喝茶。
别的团队用的是 Java。
La rete privata è 10.0.0.0/8.
Tra noi e il fiume c'è una strada.
A rede privada é 10.0.0.0/8.
Entre nós e o rio há uma estrada.
Tussen ons en de klant ligt een contract.
Между нами и рекой есть дорога.
Приватный репозиторий называется acme.
秘密鍵は保管庫にあります。
""".strip().splitlines()


@each_case("text", CONFIDED)
def test_a_confidence(text: str) -> None:
    """What asks to be kept quiet, before, in or after what is told, is shared by nobody else."""
    assert may_be_confided(text)


@each_case("text", OPEN)
def test_no_confidence(text: str) -> None:
    """Private networks, secret managers and what everybody is to hear are none."""
    assert find_confidence(text) is None


def test_what_is_told_does_not_matter() -> None:
    """A port that nobody is to hear is kept quiet: what is told does not count."""
    assert find_confidence("Between us: the port is 8443.") == Confidence()
    assert find_confidence("Keep it to yourself: the port is 8443.") == Confidence()
    assert find_confidence("The port is 8443.") is None


REACH = (
    ("What I just said stays between us.", Confidence(before=True)),
    ("Please don't tell anyone.", Confidence(before=True)),
    ("That stays between us, ok.", Confidence(before=True)),
    ("Was ich eben gesagt habe, bleibt unter uns.", Confidence(before=True)),
    ("No se lo digas a nadie, por favor.", Confidence(before=True)),
    ("Ce que je viens de dire reste entre nous.", Confidence(before=True)),
    ("刚才说的别告诉别人。", Confidence(before=True)),
    ("Can you keep a secret?", Confidence(after=True)),
    ("Kannst du ein Geheimnis für dich behalten?", Confidence(after=True)),
    ("¿Puedes guardarme un secreto?", Confidence(after=True)),
    ("你能保守秘密吗？", Confidence(after=True)),
    ("This whole conversation is confidential.", Confidence(whole=True)),
    ("Dieses Gespräch ist vertraulich.", Confidence(whole=True)),
    ("Between us, Ella sold her shop in Graz.", Confidence()),
)


@each_case(("text", "reach"), REACH)
def test_reach(text: str, reach: Confidence) -> None:
    """What a marker points at is a confidence, too; alone, it points at what was said before."""
    assert find_confidence(text) == reach


def _private(*turns: tuple[Role, str]) -> list[int]:
    """Return the numbers of the turns that are confidences; each user's turn begins a run."""
    run, entries = 0, []
    for number, (role, text) in enumerate(turns):
        run += role == "user"
        entries.append(make_entry(text, id=f"e{number}", role=role, origin=role, run_id=f"r{run}"))
    private = confided_entries(entries)
    return [number for number, entry in enumerate(entries) if entry.id in private]


def test_an_answer_is_as_private_as_what_it_answers() -> None:
    """With a message, all of its run is private: answers and tools repeat what they were told."""
    assert _private(
        ("user", "The port is 8443."),
        ("assistant", "Noted."),
        ("user", "Between us, I sold the boat."),
        ("assistant", "You sold the boat, I see."),
        ("user", "The standup is at nine."),
    ) == [2, 3]


def test_the_turn_before_and_the_turn_after() -> None:
    """A marker on its own covers the exchange before it; an announcement, the one after it."""
    assert _private(
        ("user", "I sold the boat."),
        ("assistant", "I see."),
        ("user", "That stays between us."),
        ("user", "The standup is at nine."),
    ) == [0, 1, 2]
    assert _private(
        ("user", "The standup is at nine."),
        ("user", "Can you keep a secret?"),
        ("assistant", "Of course."),
        ("user", "I sold the boat."),
        ("user", "The port is 8443."),
    ) == [1, 2, 3]


def test_a_whole_session() -> None:
    """Who calls the conversation confidential makes all of it so, from its first line."""
    turns = ("I sold the boat.", "This conversation stays between us.", "The port is 8443.")
    assert _private(*(("user", turn) for turn in turns)) == [0, 1, 2]


def test_only_people_confide() -> None:
    """What an assistant or a tool calls confidential marks nothing."""
    assert (
        _private(("assistant", "Between us, it works."), ("tool", "Strictly confidential:")) == []
    )


@each_case("text", ["don't tell ", "this is very ", "不要告诉", "between us ", "a"])
def test_long_texts(text: str) -> None:
    """A message of 100,000 characters takes no longer than its beginning and its end."""
    find_confidence(text)
    start = time.thread_time()
    find_confidence(text * (100_000 // len(text)))
    assert time.thread_time() - start < 2
