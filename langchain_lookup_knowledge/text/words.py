"""Word lists: stop words, common words that names collide with, and generic titles."""

STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been before
    being below between both but by can can't cannot could couldn't did didn't do does doesn't doing
    don't down during each else etc few for from further get gets got had hadn't has hasn't have
    haven't having he her here hers herself him himself his how how's i i'm if in into is isn't it's
    its itself just let let's may me might more most must my myself no nor not of off on once only
    or other ought our ours ourselves out over own please same shall shan't she should shouldn't so
    some such than thanks that that's the their theirs them themselves then there there's these they
    they're this those through to too under until up upon us very was wasn't we we're were weren't
    what what's when when's where where's which while who who's whom whose why why's will with won't
    would wouldn't yes you you're your yours yourself yourselves
    """.split()
) | {"it"}
"""Words that carry no meaning as a keyword."""

COMMON_WORDS = STOP_WORDS | frozenset(
    """
    able accept access account ace across act action active actor actual add address adult advance
    advice affair afraid age agency agent ago agree aid aids aim aims air alert alien alive allow
    alone along alpha already alter always amber amount amp anchor angel angle angry animal answer
    ant apart apple apply april arc arch area arena argue arm army around arrive arrow art ash aside
    ask asks asset atlas atom attack aunt august author auto autumn avoid awake aware away awe axe
    axis baby back bacon bad badge bag bake ball balm ban band bank bar bare bark base basic basket
    bass bat batch bath battery bay beach beacon beam bean bear beast beat beauty become bed bee
    beer begin behave behind belief bell belong belt bench bend beneath best bet better beyond big
    bike bill bin bind bird birth bishop bit bite bitter black blade blame blank blast blaze bless
    blind block blood bloom blossom blow blue board boat body bolt bomb bond bone book boost boot
    border born boss bottle bottom bow bowl box boy brain branch brand brave bread break breath
    breeze brick bridge brief bright bring broad brook broom brother brown brush bubble buck bud
    build bull bump bunch burn burst bus bush business busy butter button buy buzz cab cabin cable
    cactus cake calf call calm came camel camera camp cap capital captain car card care careful
    cargo carry cart carve case cash cast castle cat catch cause cave cell cent centre center chain
    chair chalk chance change chant charge charm chart chase chat cheap check cheer cheese chef
    cherry chess chest chief child chip choice choose circle city civil claim class clay clean clear
    clerk clever click cliff climb clip clock close cloth cloud clover club clue coach coal coast
    coat cobra code coffee coin cold collar collect college colour color comet comfort comic command
    common company compass compose concert cone confirm connect consul consult contact contain
    content context contract control cook cookie cool copper copy coral core corn corner correct
    cost cotton couch count country couple courage course court cousin cover cow crab craft crane
    crash crazy cream create credit creek crew cricket crime crisp crop cross crow crowd crown cruel
    cry crystal cube cup cure current curve custom cut cute cycle daily dairy daisy damage dance
    danger dare dark dart dash data date daughter dawn day deal dear death debt december decide deep
    deer defence degree delay deliver delta demand den deny depend desert design desk destroy detail
    develop device devil dew dial diamond diary dice die diet dig dim diner dinner dip direct dirt
    dish disk dive doc dock doctor dog doll dolphin done donkey door dose dot double doubt dove
    dozen draft dragon drama draw dream dress drew drift drill drink drive drop drum dry duck due
    duke dull dust duty eager eagle ear early earn earth ease east easy eat echo edge edit eel
    effect effort egg eight either elbow elder elect element elf elm email ember emerald emit
    emotion empire employ empty end enemy energy engine enjoy enough ensure enter entire entry envoy
    equal era error escape even evening event ever every evil exact exam example except excite
    excuse exist exit expect expert explain express extra eye fable face fact fade fail fair fairy
    faith falcon fall false fame family fan fancy far farm fast fat fate father fault favour fawn
    fear feast feather february fed fee feed feel fell felt fence fern fetch fever field fifth fifty
    fig fight figure file fill film final find fine finger finish fir fire firm first fish fist fit
    five fix flag flame flash flat fleet flesh flex flight flint float flock flood floor flour flow
    flower fluid flux fly focus fog fold folk follow food fool foot force forest forge forget fork
    form fort fortune forty forward found fountain four fox frame free freedom fresh friday friend
    frog front frost fruit fuel full fun fund funny fur fuse future gain galaxy game gap garden gas
    gate gather gauge gave gear gecko gem general gentle genuine ghost giant gift ginger girl give
    glad glass globe glory glove glow glue go goal goat goes gold golden gone good goose govern grab
    grace grade grain grand grant grape graph grass grave gravity great green grey gray grid grip
    ground group grove grow growth guard guess guest guide guild guitar gum gun guy habit hair half
    hall hammer hand handle happen happy harbor harbour hard hardly harm harmony harp harvest hash
    haste hat hate haven hawk hazel head heal health heap hear heart heat heaven heavy hedge heel
    height hello helm help hen herb hero hidden hide high hill hint hip hire hit hive hold hole
    holiday holly hollow home honest honey honour hood hook hop hope horizon horn horse host hot
    hotel hound hour house huge human humble humor hundred hunt hunter hurry hurt husband hut hyper
    ice icon idea ideal idle ill image impact inch income index indigo ink inn inner insect inside
    instead intend iris iron island issue item ivory ivy jack jackal jade jaguar jail jam january
    jar jasmine jasper jaw jazz jelly jet jewel job join joint joke journey joy judge juice july
    jump june jungle junior juniper jury just keen keep kernel kettle key kick kid kill kind king
    kiss kit kitchen kite knee knife knight knock knot know known lab lace ladder lady lake lamb
    lamp lance land lane language lantern large lark laser last late later laugh laurel law lawn lay
    lead leader leaf league lean leap learn lease least leather leave lecture led left leg legal
    legend lemon lend length lens leopard less lesson letter level liberty library lid lie life lift
    light like lily lime limit line link lion lip liquid list listen little live lizard load loan
    lobster local lock lodge log logic lonely long look loop loose lord lose loss lost lot lotus
    loud love low loyal luck lucky lunar lunch lung lynx lyric mac machine mad made magic magnet
    mail main make male man manage mango manner maple map marble march margin marine mark market
    marry mars marsh mask mass mast master match mate material matter may mayor maze meadow meal
    mean measure meat medal media medicine meet melody member memory men mention menu mercury mercy
    merge merit merry mess message metal meteor method metro mice middle midnight mild mile milk
    mill mind mine mineral minor mint minute mirror misery miss mission mist mix mob mobile model
    modern moment monday money monitor monkey month mood moon moral morning moss most moth mother
    motion motor mountain mouse mouth move movie much mud mule multiply muscle muse museum music
    myth nail name narrow nation native nature near neat neck need needle neighbor nerve nest net
    network never new news next nice night nine noble nobody node noise none noon normal north nose
    note nothing notice nova novel november now nurse nut oak oasis object oblivion occur ocean
    octave october odd offer office often oil old olive omega onion open opera opinion optic option
    oracle orange orbit orchard orchid order origin other otter outer outside oven owe owl owner ox
    oxygen oyster pace pack packet page paid pain paint pair palace pale palm pan panda panel
    panther paper parcel parent park parrot part partner party pass past paste patch path patient
    pattern pause pave pay payment pea peace peach peak pear pearl peer pen pencil penguin people
    pepper perfect perfume perhaps period permit person pest pet phase phoenix phone photo phrase
    piano pick picture pie piece pig pigeon pile pilot pin pine pink pint pioneer pipe pit pitch
    pixel place plain plan plane planet plant plate play plaza plead pleasant please plenty plot
    plow plug plum plus pocket poem poet point poison polar pole police polish polite pond pony pool
    poor pop popular port portal pose position possible post pot potato pound pour power practice
    praise pray present press pretty prevent price pride prime prince print prism prison private
    prize process produce product profit program promise proof proper protect proud prove proxy
    public pull pulse pump pupil puppet pure purple purpose push put puzzle quality quarter queen
    quest question quick quiet quilt quite quote rabbit race radar radio rage rail rain rainbow
    raise ram ranch random range ranger rank rapid rare rat rate rather raven raw ray reach react
    read ready real realm reap reason rebel receive recent recipe record red reed reef refer reflect
    refuse regret relate relax relay release relief remain remark remember remind remote remove rent
    repair repeat reply report rescue rest result retire return reveal review reward rhythm rib
    ribbon rice rich ride ridge right ring rise risk river road roam robin robot rock rocket rod
    role roll roof room root rope rose rough round route row royal ruby rude rug ruin rule ruler run
    rush rust sack sad saddle safe saga sage said sail saint salad sale salmon salt same sand sap
    sapphire satin saturday saturn sauce save saw say scale scarce scene school science scope score
    scout scratch scream screen script sea seal search season seat second secret section see seed
    seek seem self sell send sense sentence sentinel september serious serve service set settle
    seven several shade shadow shake shallow shape share shark sharp sheep sheet shelf shell shelter
    shepherd shield shift shine ship shirt shock shoe shoot shop shore short shot shoulder shout
    show shower shut shy sick side sierra sigh sight sign signal silent silk silly silver similar
    simple since sing single sink sister sit site six size skill skin skip skirt sky slate slave
    sleep slice slide slip slow small smart smell smile smoke smooth snake snap snow soap social
    society sock soft soil solar sold soldier solid solo solve son song sonic soon sore sorry sort
    soul sound soup source south space spade spare spark sparrow speak spear special speech speed
    spell spend sphere spice spider spin spirit split sponge spoon sport spot spread spring spruce
    spy square squash squid stable staff stage stairs stamp stand standard star stare start state
    station statue stay steady steal steam steel steep steer stem step stern stick still stitch
    stock stomach stone stop store storm story stove straight strange stream street strength stress
    stretch strict strike string strong student study stuff style subject submit such sudden sugar
    suggest suit sum summer summit sun sunday sunset super supply support sure surf surprise swallow
    swan swap swear sweat sweet swift swim swing switch sword symbol system table tail take tale
    talent talk tall tame tan tango tank tap tape target task taste tax tea teach team tear tell
    temper temple tempo ten tender tent term test text thank theory thick thief thin thing think
    third thirst thistle thorn thought thread three throat throw thumb thunder thursday tide tidy
    tie tiger tight tile time timer tin tiny tip tire title toad toast today toe together tomato
    tomorrow tone tongue tool tooth top topaz torch total touch tour toward tower town toy trace
    track trade trail train trap travel tray treasure treat tree trend trial tribe trick trip
    triumph trouble truck true trumpet trust truth try tub tube tuesday tulip tune tunnel turbo turn
    turtle twelve twenty twice twin twist two type ugly umbrella uncle union unique unit unite
    universe unless upset urge use used useful user usual vale valley value valve van vanilla vapor
    vast vault vector velvet venom venture venus verb verse vessel vest victim victor victory video
    view village vine vinegar viola violet viper virtue vision visit vital vivid voice void volcano
    volt volume vote voyage wage wagon wait wake walk wall walnut wander want war warm warn wash
    wasp waste watch water wave wax way weak wealth weapon wear weather weave web wedding wednesday
    weed week weep weigh welcome well west wet whale wheat wheel whip whisper whistle white whole
    wicked wide wife wild will willow win wind window wine wing winter wire wisdom wise wish wit
    wizard wolf woman wonder wood wool word work world worm worry worse worst worth wound wrap wren
    wrist write wrong yard yarn year yellow yesterday yet yield young youth zebra zero zone zoo
    """.split()
)
"""Common English words that are also used as names, such as `Red` or `AIMS`."""

FUNCTION_CHARACTERS = frozenset(
    "的了是在和有不我你他她它们這这那哪个個一二三四五六七八九十上下中大小人为為与與也就都而及或以于於之其所被把"
    "从從向到对對给給让讓等吗嗎呢吧啊么麼会會能可要想说說看来來去出入多少很更最太再还還又只才没沒无無非若如"
    "但因故则則且即并並将將已曾未每各某谁誰何此年月日時时分今本前后後新用做作行好同種种样樣者性化式"
)
"""Chinese characters with little meaning; inside a longer run, they do not match alone."""

GENERIC_TITLES = frozenset(
    """
    about|appendix|changelog|conclusion|contents|default|docs|documentation|example|examples|faq|
    general|getting started|glossary|guide|guides|help|home|index|info|information|intro|
    introduction|main|misc|miscellaneous|new page|note|notes|other|overview|page|readme|read me|
    reference|release notes|start|start here|summary|table of contents|template|test|title|todo|
    troubleshooting|tutorial|tutorials|untitled|welcome|概述|简介|介绍|首页|目录|说明|总览|概要|はじめに|目次|개요|소개
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
"""Titles that say nothing about the text below them."""
