"""The second half of the parity corpus: natural text in 37 languages and 30 scripts, what byte-level and
sentencepiece-style tokenizers treat specially, and mixtures. Imported by make_kinds.py; drawn with a fixed seed.

The sentences are the first article of the Universal Declaration of Human Rights and greetings, public domain.
"""

import random

RNG = random.Random(6)

ARTICLE = """
All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience.
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.
Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience.
Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia.
Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência.
Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem.
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím.
Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és lelkiismerettel bírván.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler.
Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki ja omatunto.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều được tạo hóa ban cho lý trí.
Hver maður er borinn frjáls og jafn öðrum að virðingu og réttindum. Menn eru gæddir vitsmunum og samvizku.
Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.
Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і совістю.
Сва људска бића рађају се слободна и једнака у достојанству и правима. Она су обдарена разумом и свешћу.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με λογική.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։
ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון.
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح الإخاء.
تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে। তাঁদের বিবেক এবং বুদ্ধি আছে।
ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ ਅਤੇ ਹੱਕਾਂ ਦੇ ਪੱਖੋਂ ਜਨਮ ਤੋਂ ਹੀ ਆਜ਼ਾਦ ਹੈ।
પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો જન્મથી સ્વતંત્ર અને સમાન હોય છે.
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள்.
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.
ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ. ಹಾಗೂ ಘನತೆ ಮತ್ತು ಹಕ್ಕುಗಳಲ್ಲಿ ಸಮಾನರಾಗಿದ್ದಾರೆ.
മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും അന്തസ്സോടും സ്വാതന്ത്ര്യത്തോടുംകൂടി ജനിച്ചവരാണ്.
සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත. ගරුත්වයෙන් හා අයිතිවාසිකම්වලින් සමාන වෙති.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ ແລະ ສະເໝີພາບກັນ ໃນກຽດສັກສີ ແລະ ສິດ
လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ တူညီလွတ်လပ်သော အခွင့်အရေးများဖြင့် လည်းကောင်း၊ မွေးဖွားလာသူများ ဖြစ်သည်။
មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។
འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌། ཐོབ་ཐངགི་རང་དབང་འདྲ་མཉམ་དུ་ཡོད་ལ།
የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው። የተፈጥሮ ማስተዋልና ሕሊና ስላለው አንዱ ሌላውን መተያየት ይገባዋል።
人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。
人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神互相對待。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は理性と良心とを授けられている。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았다.
Хүн бүр төрж мэндлэхэд эрх чөлөөтэй, адилхан нэр төртэй, ижил эрхтэй байдаг.
ᎾᏂᎥ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ᎠᎴ ᎤᏂᏠᏱ ᎤᎾᏕᎿ ᏚᏳᎧᏛ ᎨᏒᎢ.
ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ ᠮᠡᠨᠳᠡᠯᠡᠬᠦ ᠡᠷᠬᠡ ᠴᠢᠯᠥᠭᠡ ᠲᠡᠢ᠃
ⵉⵎⴷⴰⵏⴻⵏ ⴰⴽⴽⵏ ⵎⴰ ⵍⵍⴰⵏ ⵜⵜⵍⴰⵍⴻⵏ ⴷ ⵉⵍⴻⵍⵍⵉⵢⴻⵏ
ހުރިހާ އިންސާނުންވެސް އުފަންވެގެން ދުނިޔެއަށް އަންނަނީ މިނިވަންކަމުގައެވެ
""".strip().split("\n")

MARKERS = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>",
           "<|im_end|>", "<extra_id_0>", "<0x0A>", "<0xE2>", "▁", "▁▁a", "Ġ", "Ċ", "[UNK]", "[CLS]", "##ing", "<tool>", "<new>"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", " \t ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x85", "\x0b", "\x0c", "\x1c"]
SUFFIXES = ["'s", "'S", "'t", "'T", "'re", "'RE", "'ve", "'Ve", "'m", "'ll", "'LL", "'d", "'D", "\u2019s", "'\u017f", "'", "''", "'x"]
NUMBERS = ["0", "12", "123", "1234", "12345", "1,234,567.89", "3.14", "-7", "1e10", "²³", "½", "Ⅷ", "٣٤٥", "१२३", "四百", "①②", "१,२", "𝟙𝟚"]
PUNCT = ["!", "?!", "...", "…", "--", "—", "()", "[]", "{}", "<>", "«»", "“”", "、。", "¿¡", "।", "@#$%", "^&*", "_", "__", "|", "~", "`", "\\", "/", "//", "€", "№"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☺", "🤷🏿‍♀️", "\u200d", "\ufe0f"]
CONTROLS = ["\0", "\x01", "\x1b[0m", "\x7f", "\x80", "\u200e", "\u202e", "\ufeff", "\ufffd", "\u00ad", "\U000e0001", "\ue000", "\U0010fffd"]
SOURCE = """package main
func (s *Server) handle(ctx context.Context, r *Request) (*Reply, error) {
	if r == nil || r.ID <= 0 { return nil, fmt.Errorf("bad id %d", r.ID) }
    return self._cache.get(key, default=None)  # type: ignore
for i in range(10): print(f"{i:>4} {x[i]!r}")
const fn = async ({a, b}) => { await fetch(`/api/${a}?q=${b}`); };
SELECT u.name, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.uid = u.id GROUP BY 1;
#include <vector>
template <typename T> inline T max(const T& a, const T& b) { return a > b ? a : b; }
    <div class="row" id='x1' data-n="3">&lt;b&gt;</div>
grep -rn 'foo\\|bar' ./src | awk '{print $2}' | sort -u > /tmp/out.txt 2>&1
{"name": "x", "v": [1, 2.50, -3e-7, null, true], "s": "\\u00e9\\n"}
let mut v: Vec<Option<&'static str>> = vec![None; 16];
		return (unsigned char)(0xFFu & ~mask) << 4;
std::cout << "Hello, World!" << std::endl; // prints
export PATH="$HOME/bin:${PATH}"; cd -- "$(dirname "$0")" || exit 1
\\frac{1}{2}\\sum_{i=0}^{n} x_i^2 \\leq \\alpha""".split("\n")

SCRIPTS = [line.split() if " " in line else [line[i:i + 7] for i in range(0, len(line), 7)] for line in ARTICLE]


def natural():
    words = RNG.choice(SCRIPTS)
    at = RNG.randrange(len(words))
    out = words[at:at + RNG.choice([1, 2, 3, 4, 6])]
    if RNG.random() < 0.3:
        RNG.shuffle(out)
    out = [w.upper() if RNG.random() < 0.08 else w.title() if RNG.random() < 0.08 else w for w in out]
    return " ".join(out)


def part():
    return RNG.choice([natural] * 4 + [lambda: RNG.choice(SPACES)] * 5 + [lambda: RNG.choice(RNG.choice(SCRIPTS)) + RNG.choice(SUFFIXES)] * 2 + [
        lambda: RNG.choice(MARKERS), lambda: RNG.choice(NUMBERS), lambda: RNG.choice(PUNCT), lambda: RNG.choice(EMOJI),
        lambda: RNG.choice(CONTROLS), lambda: RNG.choice(["e\u0301", "a\u0323\u0302", "\u1e9b\u0323", "ﬁ", "Å", "が", "ｶﾞ", "\u1100\u1161\u11a8"])])()


def mixed():
    return "".join(part() for _ in range(RNG.choice([2, 3, 4, 5, 6])))


def source():
    at = RNG.randrange(len(SOURCE))
    out = "\n".join(SOURCE[at:at + RNG.choice([1, 1, 2])])
    a = RNG.randrange(len(out) // 2)
    return out[a:a + RNG.randrange(5, 60)]


def fixed():
    out = list(ARTICLE) + MARKERS + SPACES + SUFFIXES + NUMBERS + PUNCT + EMOJI + CONTROLS
    out += [" " + m for m in MARKERS] + [m + " x" for m in MARKERS] + ["x" + m + "y" for m in MARKERS] + [m + m for m in MARKERS]
    out += ["a" + s for s in SPACES] + [s + "a" for s in SPACES] + ["a" + s + "b" for s in SPACES] + [s * 3 + "b" for s in SPACES]
    out += ["I" + s for s in SUFFIXES] + ["I" + s + "y" for s in SUFFIXES] + ["12" + s for s in SUFFIXES]
    out += ["a" * 300, "ab" * 200, "aab" * 120, "é" * 150, "人" * 120, "한" * 90, "0" * 150, " " * 150, "\n" * 70, "." * 150, "😀" * 60, "\u0301" * 60,
            "x" + " " * 40 + "y", "<s>" * 40, "▁" * 60, "a\n" * 40, "aA" * 60, "a1" * 60, "\u3000" * 40, "\0" * 60]
    return out


def more():
    out = fixed()
    out += [natural() for _ in range(800)] + [source() for _ in range(250)]
    out += [mixed() for _ in range(2780 - len(out) - 150)]
    return [[t] for t in out] + [[mixed(), natural()] for _ in range(148)] + [["", "<s>"], ["a b", ""]]
