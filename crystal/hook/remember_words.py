"""Word lists by which ``remember`` separates a request to remember from a task, a question and a passing state."""

MAX_CHARS = 8_000
SPACES = " \t\r\n\u3000"
COLONS = (":", "\uff1a")
MARKS = ":\uff1a,\uff0c"
DASHES = ("-", "\u2013", "\u2014")
CHINESE_BEGINS = ("\u8bf7\u8bb0\u4f4f", "\u8acb\u8a18\u4f4f", "\u8bb0\u4f4f", "\u8a18\u4f4f")
CHINESE_REFUSED_BEGINS = tuple(
    """了 过 過 密码 密碼 账号 帳號 用户 用戶 登录 登錄 登入 状态 狀態 选择 選擇 上次 上回 之前 那个 那個
    这个 這個 我的登录 我的登錄 我的密码 我的密碼 我的选择 我的選擇 我功能 我选项 我選項 我按钮 我按鈕
    我复选框 我勾选 什么 什麼 窗口 视窗 我们刚 选中""".split()
)
CHINESE_REFUSED = tuple(
    """\uff1f ? 吗 嗎 帮我 幫我 请帮 請幫 修复 修復 修一下 改一下 改成 然后 然後 接着 接著 接下来 接下來
    现在 現在 这次 這次 刚才 剛才 昨天 今天 上次 失效 坏了 壞了 报错 報錯 不工作 不生效 功能 先 怎么
    怎麼 如何""".split()
)
CHINESE_LASTING = tuple(
    """是 在 用 叫 住 喜欢 喜歡 偏好 讨厌 討厭 必须 必須 永远 永遠 总是 總是 所有 每次 每个 每個 一律 不能
    不要 不得 要""".split()
)


def _words(text: str) -> "frozenset[str]":
    return frozenset(text.split())


def _phrases(text: str) -> "tuple[str, ...]":
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))


MARKED = frozenset(
    _phrases(
        """|this|that|the following|following|these|these rules|this rule|these things|this for later|for later
        |this for next time|for next time|next time|for the future|this for the future|for future sessions|always
        |for the next session|from now on|going forward|everywhere|this everywhere|everywhere that|please|these facts
        |a few things|some things|this fact|in the future|in future|one thing|two things|three things"""
    )
)
FUTURE = _phrases("for next time|for the future|for future sessions|from now on|going forward|in the future|in future")
DETERMINERS = _words("the our my all every each no any")
OWN = _words("our my all every each no any")
ARTICLES = _words("the a an")
DUTIES_OF_THINGS = _words("must mustn't lives live belongs belong uses use requires require runs run")
POINTING = _words(
    """me us him her them it he she they that these those there one both everything myself yourself last how why what
    when where who which whose whether if because since while after before until is was has does his"""
)
RELATIVE = _words("that which who whom whose we you i they he she it where when from about was were had did said told")
COPULAS = _words("is are isn't aren't")
FACTS = COPULAS | _words(
    """lives live listens listen belongs belong uses use requires require stores store runs run ships ship starts
    start ends end closes close opens open hosts owns manages reviews speaks talks points targets deploys deploy
    prefers prefer likes like hates loves never always costs resets"""
)
VERBS = FACTS | _words(
    """should must shouldn't mustn't can can't cannot has have hasn't haven't doesn't don't does do may might returns
    return gets get goes go comes come happens happen means mean works work takes take needs need wants want keeps
    keep expects expect point contains contain depends depend supports support writes write releases release
    builds build calls follows follow allows allow stays stay stands sits sit lets own serves reads exposes
    accepts rejects begins maps holds handles"""
)
TASK_VERBS = {(verb, "to") for verb in ("need", "needs", "has", "have")}
WISHES = {("must", "be"), ("should", "be")}
NUMBERS = _words("one two three four five 1 2 3 4 5")
HABITS = _words(
    """use prefer like love hate dislike live work write speak drink eat own call name run deploy test ship release
    support host build store keep follow target squash rebase merge review sign tag format lint log track document
    publish version pin avoid start finish meet pair charge bill pay accept require cache mirror translate measure
    mock commit allow sell serve represent encode identify number separate generate treat round sleep cook"""
)
KINDS = _words("monorepo fork library public private python rust typescript django rails")
WHOLES = _words("repo repository project codebase monorepo package app service team company machine laptop workspace")
DECISIONS = _words(
    "decided agreed chose moved switched migrated renamed deprecated standardized standardised settled dropped adopted"
)
DUTIES = _words("always never should must shouldn't mustn't")
TRAITS = _words("allergic vegetarian vegan based a an using running targeting hosting supporting living")
ADVERBS = _words("don't only never always both mostly usually do not")
NEEDS = _words("need have want must should can can't cannot")
FILLERS = _words("not very really too so only just")
CONJUNCTIONS = _words("and but so also thus hence or")
PASSING_STATES = _words(
    """broken failing down red stuck wrong missing done finished ready back up unclear incomplete gone important
    urgent late slow failed crashing empty unfinished wip flaky next there here off unstable different weird new
    old okay ok going about trying almost only just"""
)
PASSING = _phrases(
    """yesterday|earlier|last time|last week|last month|last night|last session|this time|this morning|this afternoon
    |at that point|tonight|today|tomorrow|right now|for now|at the moment|just now|currently|still|again|anymore|yet|ago
    |previous|previously|already|as i said|like i said|i said|i told|i mentioned|i asked|you said|you told|you mentioned
    |you wrote|you did|you made|you were|you had|we talked|we discussed|we were|we did|we had|the other day|back then
    |that time|from before|the above|see above|so far|in mind|just want|just need|you to|while you|before you|after you
    |until you|when you|if you|once you|as you|your answer|thank you|thanks|nothing happens|does nothing|do nothing"""
)
THIS_WORK = _phrases(
    """this task|this pr|this branch|this bug|this issue|this ticket|this change|this session|this conversation
    |this function|this refactor|this feature|this step|this prompt|this question|this test|for now|right now
    |your task|your job|your goal|your context|context is|step by step|only what you need|attached"""
)
STANDING = _phrases(
    """always|never|whenever|every time|each time|any time|from now on|going forward|in the future|in future
    |before every|before each|before any|before committing|before pushing|before merging|before deploying
    |before releasing|before a commit|after every|after each|after any|every commit|every day|every week|every release
    |every pr|every session|by default"""
)
ACTIONS = _words(
    """fix add make update change remove delete create write implement refactor rename move run test check look find
    try go give show tell explain help review revert undo commit push merge deploy build install open read search
    clean rewrite convert translate generate investigate debug continue proceed start stop finish apply replace
    put set please now then let let's lets reformat format port extract split document describe list print analyze
    analyse compare plan draft figure work restart rerun redo adjust ensure verify do drop rebase bump migrate
    upgrade handle skip ignore instead here's here actually ok okay can could would will did does why what how
    where is are which prepare polish tidy bring shorten simplify optimise optimize summarise summarize sketch
    propose suggest outline inline wire connect include exclude copy paste duplicate double-check validate reply
    respond answer match mirror stub simulate style align resize center scale pin lock wrap sort filter group trim
    clear reset restore switch toggle enable disable turn call return raise throw catch log trace profile measure
    benchmark squash stash tag publish send notify hash roll account think consider focus get take support render
    store cache load parse expose"""
)
OBJECTS = _words("it that this the them a an my our your these those all some any")
SUBJECTS = _words("we i my our the this all every each no never always production staging prod they it its that he she")
ENVIRONMENTS = _words(
    "production staging prod main master everyone everybody nobody deployment deploys dev ci qa mypy ruff eslint pytest"
)
TASKS = _words(
    """task goal plan point aim request ask question requirement requirements idea problem objective changes pr
    branch code focus priority deadline scope intention intent purpose rest message answer prompt feedback comment
    comments review fix patch diff build function bug issue test input output array string loop variable argument
    parameter stack trace error exception line user request response method class file script field button page
    screen component query checkbox list callback"""
)
NO_LABELS = TASKS | _words("errors log warning todo step steps context")
LITERALS = _words("true false null none undefined nil nan yes no on off 0 1")
SHORTENED = _words("mr mrs ms dr st vs etc e.g i.e no nr prof inc ltd")
