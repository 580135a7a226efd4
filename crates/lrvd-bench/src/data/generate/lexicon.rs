//! The words of the grammars.
//!
//! Plain words of nineteenth-century novels, because the small pretrained model that ships with the workspace has
//! read nothing else. An entry `goose/geese` or `sing/sang/sung` spells out irregular forms; all others follow the
//! regular rules in [`super::morphology`].

use std::sync::LazyLock;

use super::morphology::{Noun, Verb};

/// Words by what they can stand for.
#[derive(Debug)]
pub(super) struct Lexicon {
    /// Men, women, and persons of either sex.
    pub(super) persons: Vec<Noun>,
    pub(super) places: Vec<&'static str>,
    pub(super) times: Vec<&'static str>,
    /// Adjectives before a person.
    pub(super) epithets: Vec<&'static str>,
    /// Adjectives after `was`.
    pub(super) states: Vec<&'static str>,
    /// Verbs between two persons that mean something else when the two change places.
    pub(super) deeds: Vec<Verb>,
    /// Pairs of such verbs that mean the same.
    pub(super) twins: Vec<[Verb; 2]>,
    /// Verbs without an object.
    pub(super) acts: Vec<Verb>,
    /// Pairs of comparatives of opposite meaning.
    pub(super) comparatives: Vec<[&'static str; 2]>,
    pub(super) praise: Vec<&'static str>,
    pub(super) blame: Vec<&'static str>,
    /// What a review is about.
    pub(super) topics: Vec<&'static str>,
    /// Parts of such a thing.
    pub(super) parts: Vec<&'static str>,
}

/// The lexicon; built once.
pub(super) static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon {
    persons: [nouns(MEN), nouns(WOMEN), nouns(EITHER)].concat(),
    places: phrases(PLACES),
    times: phrases(TIMES),
    epithets: words(EPITHETS),
    states: words(STATES),
    deeds: verbs(DEEDS),
    twins: words(TWINS).iter().filter_map(|pair| twin(pair)).collect(),
    acts: verbs(ACTS),
    comparatives: words(COMPARATIVES)
        .iter()
        .filter_map(|pair| pair.split_once('=').map(|(more, less)| [more, less]))
        .collect(),
    praise: words(PRAISE),
    blame: words(BLAME),
    topics: words(TOPICS),
    parts: words(PARTS),
});

fn words(list: &'static str) -> Vec<&'static str> {
    list.split_whitespace().collect()
}

fn phrases(list: &'static str) -> Vec<&'static str> {
    list.split('|').map(str::trim).collect()
}

fn nouns(list: &'static str) -> Vec<Noun> {
    words(list).into_iter().map(Noun::parse).collect()
}

fn verbs(list: &'static str) -> Vec<Verb> {
    words(list).into_iter().map(Verb::parse).collect()
}

fn twin(pair: &'static str) -> Option<[Verb; 2]> {
    pair.split_once('=').map(|(first, second)| [Verb::parse(first), Verb::parse(second)])
}

const MEN: &str = "captain sailor gentleman/gentlemen boy clergyman/clergymen lawyer merchant soldier \
    officer gardener farmer shepherd uncle brother nephew son clerk baker butcher miller tailor \
    carpenter blacksmith schoolmaster landlord squire knight prince duke baronet bishop vicar curate \
    priest monk constable pirate coachman/coachmen groom footman/footmen butler porter fisherman/fishermen \
    king colonel lieutenant sergeant grandfather father husband banker steward workman/workmen \
    watchman/watchmen nobleman/noblemen";

const WOMEN: &str = "lady widow girl sister aunt niece daughter governess nurse housekeeper landlady \
    princess countess duchess maid queen bride grandmother mother wife/wives mistress hostess \
    heroine actress dame matron";

const EITHER: &str = "doctor servant child/children traveller stranger cousin cook tenant poet painter \
    musician actor scholar student professor philosopher judge magistrate prisoner thief/thieves robber \
    beggar orphan messenger waiter hunter guide engineer printer editor visitor guest neighbour friend \
    enemy companion artist physician surgeon peasant lodger passenger witness spy/spies pupil tutor \
    secretary lover rival heir native relation";

const PLACES: &str = "in the garden|in the kitchen|in the library|in the church|at the inn|in the village|\
    at the market|in the harbour|in the forest|in the meadow|in the cottage|in the castle|in the parlour|\
    in the hall|in the street|in the square|at the station|in the hospital|in the prison|at the school|\
    at the theatre|in the tower|in the barn|in the stable|at the mill|on the bridge|in the orchard|in the park|\
    in the courtyard|in the cellar|in the chapel|in the wood|in the field|in the valley|on the hill|\
    on the island|in the cave|on the shore|by the river|on the road|near the gate|by the fire|on the stairs|\
    in the drawing-room|behind the house|under the trees|on the deck|beside the lake";

const TIMES: &str = "in the morning|in the evening|in the afternoon|at noon|at midnight|at dawn|at sunset|\
    before supper|after dinner|after breakfast|before breakfast|on Monday|on Tuesday|on Wednesday|on Thursday|\
    on Friday|on Saturday|on Sunday|last night|yesterday|in the spring|in the summer|in the autumn|\
    in the winter|during the storm|during the war|after the funeral|before the wedding|at Christmas|\
    at Easter|in the month of May|in the year of the plague|an hour ago|a week ago|three days ago|\
    at six o'clock|at ten o'clock|before sunrise";

const EPITHETS: &str = "old young tall poor rich proud kind cruel honest clever foolish brave timid idle \
    cheerful weary lame blind noble humble stern gentle jealous wicked learned handsome pale stout little \
    quiet lonely faithful greedy generous careless obstinate merry sullen pretty elderly thin wise bold";

const STATES: &str = "tired hungry happy angry ready silent late ill pale asleep absent afraid alone busy \
    safe sorry content lost anxious ashamed astonished calm cold cross drunk eager free glad grave guilty \
    helpless impatient innocent lame miserable nervous poor quiet rich sad serious sick sleepy sober \
    uneasy unhappy useless weak welcome wet wise wounded";

const DEEDS: &str = "thank follow praise blame deceive rescue see/saw/seen visit accuse forgive/forgave/forgiven \
    admire fear love hate trust insult invite warn watch obey pity rob/robbed/robbed betray help kiss \
    strike/struck/struck hear/heard/heard find/found/found know/knew/known scold comfort envy dismiss \
    flatter tease punish challenge defend attack accompany amuse astonish address question answer \
    welcome frighten wound nurse seize shoot/shot/shot bite/bit/bitten teach/taught/taught \
    remember forget/forgot/forgotten mention recognise threaten cure ruin offend despise";

const TWINS: &str = "follow=pursue praise=commend blame=reproach deceive=mislead/misled/misled rescue=save \
    see/saw/seen=perceive accuse=denounce forgive/forgave/forgiven=pardon admire=esteem fear=dread \
    hate=detest help=assist warn=caution watch=observe insult=abuse scold=rebuke comfort=console \
    defend=protect attack=assault frighten=terrify wound=injure seize=capture despise=scorn \
    astonish=surprise dismiss=discharge answer=reply-to/replied-to/replied-to";

const ACTS: &str = "sleep/slept/slept laugh cry sing/sang/sung dance wait work arrive return smile tremble \
    faint whisper speak/spoke/spoken complain rest escape fall/fell/fallen weep/wept/wept pray kneel/knelt/knelt \
    shout sigh cough bow blush protest suffer swim/swam/swum ride/rode/ridden run/ran/run \
    rise/rose/risen shiver stumble stare surrender vanish sneeze yawn";

const COMPARATIVES: &str = "older=younger taller=shorter richer=poorer stronger=weaker heavier=lighter \
    happier=sadder faster=slower louder=quieter fatter=thinner larger=smaller better=worse \
    warmer=colder nobler=meaner";

const PRAISE: &str = "delightful charming admirable excellent agreeable amusing beautiful pleasant splendid \
    brilliant graceful generous lively cheerful elegant noble witty tender wonderful magnificent lovely \
    handsome sensible clever interesting touching fine perfect glorious sweet refreshing entertaining \
    spirited amiable superb exquisite comfortable honest thrilling happy merry good capital remarkable \
    satisfactory delicate sublime impressive enchanting instructive";

const BLAME: &str = "dull dreary tedious wretched miserable horrible dreadful disagreeable tiresome ugly vulgar \
    clumsy foolish stupid absurd gloomy cold feeble shabby dismal wearisome odious hateful unpleasant \
    coarse false mean awkward melancholy vile poor worthless bitter insolent detestable disgusting \
    ridiculous monotonous bad offensive painful shameful frightful hideous contemptible nasty \
    intolerable idle commonplace childish";

const TOPICS: &str = "novel story play concert supper dinner voyage journey ball letter sermon speech song \
    house inn garden picture book poem comedy tragedy opera lecture lesson visit holiday conversation \
    party performance description tale history drawing dance feast walk entertainment exhibition picnic \
    breakfast ceremony wedding adventure romance ballad festival excursion";

const PARTS: &str = "beginning ending opening middle first-half second-half company music weather \
    language manner arrangement opening-scene last-scene wine conversation preface introduction \
    conclusion style setting";
