//! A tiny task, tiny models, and the start of a run as the harness makes it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device, Tensor};
use lrvd_bench::answers::AnswerSpace;
use lrvd_bench::data::batch::{TokenExamples, TokenisedExample};
use lrvd_bench::data::{Label, PreparedTask};
use lrvd_bench::eval::{PeakMemory, RunContext};
use lrvd_bench::method::{DynMethod, FittedRows, Holdout, MethodName, RankRequest, Temperatures};
use lrvd_bench::run::{RunState, fit};
use lrvd_bench::settings::{Config, Layers, Preset, TargetModules};
use lrvd_bench::task::Goal;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::NamedModule;
use lrvd_burn::objective::Objective;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    Batch, Examples, Fitted, Model, Outcome, Run, StepContext, negative_log_likelihood,
};
use lrvd_core::noise::{Generator, NoiseKey};
use lrvd_core::schedule::BatchSize;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{AutoModel, TokenBatch, WeightSource};

pub(crate) const LABELS: usize = 2;
/// Ids from here on are ordinary in both vocabularies.
const FIRST_ID: u32 = 5;
const VOCABULARY: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backbone {
    Deberta,
    Llama,
    NarrowLlama,
    /// A random `DeBERTa` of width 24.
    Random,
}

impl Backbone {
    fn folder(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(match self {
            Self::Llama | Self::NarrowLlama => {
                "../lrvd-models/tests/golden/llama/explicit_head_dim"
            }
            Self::Deberta | Self::Random => "../lrvd-models/tests/golden/train/deberta_lora/base",
        })
    }

    fn targets(self) -> TargetModules {
        let names: &[&str] = match self {
            Self::Llama | Self::NarrowLlama => &["q_proj", "v_proj", "lm_head"],
            _ => &["query_proj", "key_proj", "value_proj", "output.dense"],
        };
        TargetModules::names(names)
    }
}

pub(crate) struct Bench {
    pub(crate) backbone: Backbone,
    pub(crate) config: Config,
    pub(crate) task: PreparedTask,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    pub(crate) seed: u64,
    /// Rows that something is fitted to after training.
    pub(crate) fitted: FittedRows,
    pub(crate) stop: AtomicBool,
}

pub(crate) struct Finished {
    pub(crate) method: Box<DynMethod>,
    pub(crate) model: AutoModel,
    pub(crate) fitted: Fitted,
    pub(crate) temperatures: Temperatures,
}

impl Bench {
    pub(crate) fn new(backbone: Backbone) -> Self {
        let preset = Preset::ConstantWeight;
        let config = match backbone {
            Backbone::Llama | Backbone::NarrowLlama => preset.reasoning_config(),
            _ => preset.config(),
        };
        let mut bench = Self {
            backbone,
            config: Config { target_modules: backbone.targets(), ..config },
            task: task(),
            device: Device::flex(),
            dtype: DType::F32,
            seed: 7,
            fitted: FittedRows::None,
            stop: AtomicBool::new(false),
        };
        bench.assign(
            "steps=3 batch_size=4 evaluation_batch_size=3 evaluate_every=3 initial_rank=4 lora_alpha=6.0 \
             learning_rate=1e-2 head_learning_rate=1e-2 warmup_ratio=0.0 draws=[2,3]",
        );
        bench
    }

    pub(crate) fn assign(&mut self, settings: &str) {
        let mut layers = Layers::over(&self.config).unwrap();
        settings.split_whitespace().for_each(|one| layers.assign(one).unwrap());
        self.config = layers.finish().unwrap();
    }

    pub(crate) fn context(&self) -> RunContext<'_> {
        RunContext {
            config: &self.config,
            task: &self.task,
            seed: self.seed,
            fitted: self.fitted,
            device: &self.device,
            dtype: self.dtype,
            memory: PeakMemory::start(),
            watch: None,
        }
    }

    pub(crate) fn model(&self) -> AutoModel {
        let folder = self.backbone.folder();
        let store = WeightStore::open(&folder).unwrap();
        let device = &self.device;
        let dtype = self.dtype;
        let config = folder.join("config.json");
        match self.backbone {
            Backbone::Deberta => {
                let names = (0..LABELS).map(|i| format!("LABEL_{i}")).collect();
                let config = DebertaConfig::read(&config).unwrap().with_labels(names);
                let seed = NoiseKey::new(self.seed);
                let loaded =
                    DebertaClassifier::from_pretrained(&store, &config, seed, device, dtype);
                AutoModel::Deberta(loaded.unwrap().0)
            }
            Backbone::Random => {
                let names = (0..self.task.labels).map(|i| format!("LABEL_{i}")).collect();
                let text = include_bytes!("random.json");
                let config = DebertaConfig::parse(text, &config).unwrap().with_labels(names);
                let mut source = WeightSource::random(NoiseKey::new(5), device, dtype);
                AutoModel::Deberta(DebertaClassifier::load(&mut source, &config))
            }
            Backbone::Llama | Backbone::NarrowLlama => {
                let narrow = self.backbone == Backbone::NarrowLlama;
                let dtype = if narrow { DType::BF16 } else { dtype };
                let config = LlamaConfig::read(&config).unwrap();
                let loaded = LlamaForCausalLm::from_pretrained(&store, &config, device, dtype);
                let answers = (0..LABELS as u32).map(|i| 20 + 7 * i).collect();
                AutoModel::Llama(loaded.unwrap().0.answering(answers).unwrap())
            }
        }
    }

    pub(crate) fn build(&self, method: MethodName) -> Box<DynMethod> {
        method.build(&self.config, RankRequest::Initial).unwrap()
    }

    pub(crate) fn fresh(&self, method: MethodName) -> RunState {
        let targets = self.config.target_modules.layers();
        let settings = self.config.training(self.seed);
        let run = Run::new(self.model(), self.build(method), &targets, &settings).unwrap();
        match method.search(&self.config) {
            Some(search) => run.searching(search).unwrap(),
            None => run,
        }
    }

    pub(crate) fn train(&self, run: &mut RunState) {
        let ended = fit(&self.context(), run, None, &self.stop, &mut |_| {});
        assert_eq!(ended.unwrap(), Outcome::Finished);
    }

    pub(crate) fn trained(&self, method: MethodName) -> RunState {
        let mut run = self.fresh(method);
        self.train(&mut run);
        run
    }

    /// Trains a method on what it does not hold out, and fits what is fitted after that.
    pub(crate) fn finished(&mut self, name: MethodName) -> Finished {
        let Holdout { share, fitted } =
            Holdout::new(name, &self.config, self.task.train.len(), false, &AnswerSpace::Tokens);
        if share > 0.0 {
            self.task = self.task.holding_out(share, self.seed);
        }
        self.fitted = fitted;
        let Run { state, mut method, .. } = self.trained(name);
        let mut model = state.compacted();
        let (fitted, temperatures) = self.context().fitted(|data| {
            let fitted = method.finish(&mut model, data).unwrap();
            let draws = name.draws(&self.config);
            let fit = || Temperatures::fit(&*method, &model, data, &draws).unwrap();
            (fitted, name.is_tempered().then(fit).unwrap_or_default())
        });
        Finished { method, model, fitted, temperatures }
    }

    pub(crate) fn validation(&self) -> TokenExamples<'_> {
        self.context().examples(&self.task.validation)
    }

    pub(crate) fn batch(&self) -> (Batch<TokenBatch>, StepContext) {
        let indices: Vec<usize> = (0..self.config.batch_size).collect();
        let batch = self.context().examples(&self.task.train).batch(&indices).unwrap();
        let examples = batch.targets.rows();
        let tokens = batch.tokens;
        let n_train = self.task.train.len();
        let whole = BatchSize { examples, tokens, n_train };
        let steps = self.config.steps;
        let pass = Pass::mean();
        (batch, StepContext { step: 0, steps, examples, tokens, batch: whole, n_train, pass })
    }

    /// Addition of `tuning` to a likelihood of 0 in a step on [`Bench::batch`].
    pub(crate) fn objective(
        &self,
        tuning: &DynMethod,
        model: &AutoModel,
        pass: &Pass,
    ) -> Objective {
        let step = StepContext { pass: *pass, ..self.batch().1 };
        let likelihood = Objective::likelihood(Tensor::zeros([1], &Device::flex()));
        tuning.objective(model, &step, likelihood).unwrap()
    }

    /// Gradients of the mean negative log-likelihood of [`Bench::batch`].
    pub(crate) fn gradients(&self, model: &mut AutoModel, pass: &Pass) -> NamedGradients {
        let (batch, sizes) = self.batch();
        let logits = model.logits(&batch.input, pass);
        let nll =
            negative_log_likelihood(logits, &batch.targets).mul_scalar(1.0 / sizes.examples as f64);
        NamedGradients::collect(model, &nll.backward())
    }
}

pub(crate) fn method(key: &str) -> MethodName {
    MethodName::from_name(key).unwrap_or_else(|| panic!("{key}"))
}

pub(crate) fn prepared(
    goal: Goal,
    train: Vec<TokenisedExample>,
    validation: Vec<TokenisedExample>,
) -> PreparedTask {
    let validation_ids = (0..validation.len()).map(|i| i.to_string()).collect();
    let empty = PreparedTask::without_examples(goal);
    PreparedTask { train, validation, validation_ids, ..empty }
}

fn task() -> PreparedTask {
    let mut draws = Generator::new(NoiseKey::new(11));
    let mut examples = |n: usize| -> Vec<TokenisedExample> {
        let mut one = |i: usize| {
            let mut id = |_| FIRST_ID + draws.bounded(VOCABULARY - FIRST_ID);
            let ids = (0..4 + (5 * i) % 7).map(&mut id).collect();
            TokenisedExample::single(ids, Label::Class(i % LABELS))
        };
        (0..n).map(&mut one).collect()
    };
    let names = (0..LABELS).map(|i| format!("c{i}")).collect();
    prepared(Goal::classification("tiny", names), examples(14), examples(5))
}

pub(crate) fn trained(model: &AutoModel) -> Vec<(String, Vec<f64>)> {
    let mut found = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            found.push((p.name.to_owned(), numbers(p.value.flat())));
        }
    });
    found
}

pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

pub(crate) fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    let scale = expected.abs().max(1e-300);
    assert!((found - expected).abs() <= tolerance * scale, "{what}: {found}, expected {expected}");
}
