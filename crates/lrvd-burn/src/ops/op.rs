//! One operator: its definition by tensor operations, and its fused forms on backends that have one.
//!
//! An operator's file has its definition, its shapes, its public function, and its forms in `f32` on the CPU (`cpu`) and on
//! CubeCL's devices (`cube`). The choice of the form and the node of the graph are here, once for all operators. Where a
//! backend has no fused form, the composite runs, and Burn differentiates it.

use std::cell::Cell;
use std::fmt::Debug;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, QuantizedTensor};
use burn::backend::{
    AutodiffBackend, Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor,
    DispatchTensorKind, ExtensionType, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Tensor};

/// An operator that a backend may replace by a fused form; its fields are its arguments that are not tensors.
pub(crate) trait FusedOp: Clone + Debug + Send + Sync + 'static {
    /// The definition, by tensor operations.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B>;

    /// The fused form on Burn's CPU backend for elements of `dtype`.
    #[cfg(feature = "flex")]
    fn cpu(_dtype: DType) -> Option<Form<burn::backend::Flex, Self>> {
        None
    }

    /// The fused form on CubeCL's devices; `f64` runs the composite.
    #[cfg(feature = "cube")]
    fn cube() -> Option<Form<burn_cubecl::CubeBackend, Self>> {
        None
    }
}

type Forward<B, O> = fn(&O, Operands<B>, bool) -> Fused<B>;
type Gradient<B, O> = fn(&O, Upstream<'_, B>) -> Operands<B>;

/// A fused form on backend `B`. It never meets an empty first operand.
pub(crate) struct Form<B: Backend, O> {
    /// Gives the output and, if asked to save, the tensors that the gradient reads.
    pub(crate) forward: Forward<B, O>,
    pub(crate) derivative: Derivative<B, O>,
}

/// Derivative of a fused form.
pub(crate) enum Derivative<B: Backend, O> {
    /// The output is constant.
    Zero,
    /// Gradients of the operands, at least where needed.
    ByHand(Gradient<B, O>),
    /// The form is for passes without a gradient; with one the composite runs, and Burn differentiates it.
    #[cfg_attr(not(feature = "flex"), expect(dead_code, reason = "forms of the CPU have it"))]
    OfComposite,
}

/// An output, and the tensors that its gradient reads.
pub(crate) struct Fused<B: Backend> {
    pub(crate) out: FloatTensor<B>,
    pub(crate) saved: Operands<B>,
}

/// Arguments of a gradient.
pub(crate) struct Upstream<'a, B: Backend> {
    /// Tensors that the forward pass saved.
    pub(crate) saved: Operands<B>,
    /// The gradient of the output.
    pub(crate) grad: FloatTensor<B>,
    /// `true` for each operand that needs a gradient.
    pub(crate) needs_grad: &'a [bool],
}

/// Tensors by position: operands, what is saved of them, or their gradients; an absent one is `None`.
#[derive(Clone, Debug)]
pub(crate) struct Operands<B: Backend> {
    pub(crate) tensors: Vec<Option<FloatTensor<B>>>,
    /// A constant that is held quantised.
    pub(crate) quantized: Option<QuantizedTensor<B>>,
}

impl<B: Backend> From<Vec<Option<FloatTensor<B>>>> for Operands<B> {
    fn from(tensors: Vec<Option<FloatTensor<B>>>) -> Self {
        Self { tensors, quantized: None }
    }
}

impl<B: Backend> Operands<B> {
    pub(crate) fn of<const N: usize>(tensors: [FloatTensor<B>; N]) -> Self {
        tensors.map(Some).to_vec().into()
    }

    /// Some absent.
    pub(crate) fn some<const N: usize>(tensors: [Option<FloatTensor<B>>; N]) -> Self {
        Vec::from(tensors).into()
    }

    /// The first `N`, which every call has.
    pub(crate) fn all<const N: usize>(self) -> [FloatTensor<B>; N] {
        self.parts::<N, 0>().0
    }

    /// The first `N`, which every call has, and the next `M`.
    pub(crate) fn parts<const N: usize, const M: usize>(
        self,
    ) -> ([FloatTensor<B>; N], [Option<FloatTensor<B>>; M]) {
        let mut tensors = self.tensors.into_iter();
        let mut next = || tensors.next().flatten();
        let given = std::array::from_fn(|_| next().expect("an operand of every call"));
        (given, std::array::from_fn(|_| next()))
    }

    /// Operands at `places`, if they are to be saved.
    pub(crate) fn keep(&self, save: bool, places: &[usize]) -> Self {
        let places = if save { places } else { &[] };
        places.iter().map(|&place| self.tensors[place].clone()).collect::<Vec<_>>().into()
    }

    pub(crate) fn first(&self) -> &FloatTensor<B> {
        self.tensors[0].as_ref().expect("an operator has a first operand")
    }
}

impl<B: Backend> ExtensionType<B> for Operands<B> {
    type Target = Operands<Dispatch>;

    fn map_to_dispatch<F>(self, kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor { kind: kind(tensor), autodiff };
        let float = |tensor| wrap(BackendTensor::Float(tensor));
        Operands {
            tensors: self.tensors.into_iter().map(|tensor| tensor.map(float)).collect(),
            quantized: self.quantized.map(|tensor| wrap(BackendTensor::Quantized(tensor))),
        }
    }

    fn map_from_dispatch<F>(target: Self::Target, kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        Self {
            tensors: target.tensors.into_iter().map(|x| x.map(|x| kind(x).float())).collect(),
            quantized: target.quantized.map(|x| kind(x).quantized()),
        }
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.tensors.iter().flatten().next()
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        Self::routing_tensor(target)
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let contexts = target.tensors.iter().flatten().map(|tensor| tensor.autodiff);
        contexts.fold(DispatchAutodiffContext::Disabled, DispatchAutodiffContext::merge)
    }
}

/// A backend on which the operators run.
#[backend_extension(Autodiff, Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"))]
pub(crate) trait LrvdBackend: Backend {
    /// `op` of `x`, by its fused form if the backend has one. Shapes have been checked by the
    /// operator's public function.
    fn fused<O: FusedOp>(op: O, #[extension_type] x: Operands<Self>) -> FloatTensor<Self>;
}

/// A backend with fused forms.
pub(crate) trait Forms: LrvdBackend {
    /// The form for elements of `dtype`.
    fn form<O: FusedOp>(dtype: DType) -> Option<Form<Self, O>>;
}

thread_local! {
    static BY_DEFINITION: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with the definition of every operator in place of its fused form: the reference of tests and benches.
pub fn by_definition<T>(f: impl FnOnce() -> T) -> T {
    /// Ends also where `f` panics.
    struct Until(bool);
    impl Drop for Until {
        fn drop(&mut self) {
            BY_DEFINITION.set(self.0);
        }
    }
    let _until = Until(BY_DEFINITION.replace(true));
    f()
}

/// The form for `x`, the first operand; empty tensors run the composite.
fn form_for<B: Forms, O: FusedOp>(x: &impl TensorMetadata) -> Option<Form<B, O>> {
    let defined = BY_DEFINITION.get() || x.shape().num_elements() == 0;
    B::form::<O>(x.dtype()).filter(|_| !defined)
}

#[cfg(any(feature = "flex", feature = "cube"))]
fn run<B: Forms, O: FusedOp>(op: O, x: Operands<B>) -> FloatTensor<B> {
    match form_for::<B, O>(x.first()) {
        Some(form) => (form.forward)(&op, x, false).out,
        None => op.composite::<B>(x),
    }
}

#[cfg(feature = "flex")]
impl Forms for burn::backend::Flex {
    fn form<O: FusedOp>(dtype: DType) -> Option<Form<Self, O>> {
        O::cpu(dtype)
    }
}

#[cfg(feature = "flex")]
impl LrvdBackend for burn::backend::Flex {
    fn fused<O: FusedOp>(op: O, x: Operands<Self>) -> FloatTensor<Self> {
        run(op, x)
    }
}

#[cfg(feature = "cube")]
impl Forms for burn_cubecl::CubeBackend {
    fn form<O: FusedOp>(dtype: DType) -> Option<Form<Self, O>> {
        O::cube().filter(|_| dtype != DType::F64)
    }
}

#[cfg(feature = "cube")]
impl LrvdBackend for burn_cubecl::CubeBackend {
    fn fused<O: FusedOp>(op: O, x: Operands<Self>) -> FloatTensor<Self> {
        run(op, x)
    }
}

impl<B: Forms, C: CheckpointStrategy> LrvdBackend for Autodiff<B, C> {
    fn fused<O: FusedOp>(op: O, x: Operands<Self>) -> FloatTensor<Self> {
        let (forward, gradient) = match form_for::<B, O>(x.first()) {
            None | Some(Form { derivative: Derivative::OfComposite, .. }) => {
                return op.composite::<Self>(x);
            }
            Some(Form { forward, derivative: Derivative::Zero }) => {
                return <Self as AutodiffBackend>::from_inner(forward(&op, inner(x), false).out);
            }
            Some(Form { forward, derivative: Derivative::ByHand(gradient) }) => (forward, gradient),
        };
        // A node with more parents than operands would change the order in which Burn sums the gradients of a tensor.
        let run = match x.tensors.len() {
            1 => node::<B, C, O, 1>,
            2 => node::<B, C, O, 2>,
            3 => node::<B, C, O, 3>,
            4 => node::<B, C, O, 4>,
            5 => node::<B, C, O, 5>,
            6 => node::<B, C, O, 6>,
            _ => node::<B, C, O, 10>,
        };
        run(op, x, forward, gradient)
    }
}

fn inner<B: Backend, C: CheckpointStrategy>(x: Operands<Autodiff<B, C>>) -> Operands<B> {
    let inner = |x: FloatTensor<Autodiff<B, C>>| x.into_primitive();
    Operands {
        tensors: x.tensors.into_iter().map(|x| x.map(inner)).collect(),
        quantized: x.quantized,
    }
}

/// `op` of `x` as one node of the graph with `N` parents.
fn node<B: Forms, C: CheckpointStrategy, O: FusedOp, const N: usize>(
    op: O,
    x: Operands<Autodiff<B, C>>,
    forward: Forward<B, O>,
    gradient: Gradient<B, O>,
) -> FloatTensor<Autodiff<B, C>> {
    // An absent operand is represented by the first one, and its gradient is never needed.
    let present = std::array::from_fn(|i| x.tensors.get(i).is_some_and(Option::is_some));
    let of = |i: usize| x.tensors.get(i).and_then(Option::as_ref).unwrap_or(x.first());
    let parents: [NodeGuard; N] = std::array::from_fn(|i| of(i).node());
    let x = inner(x);
    let node = Node { op: op.clone(), gradient, present };
    match node.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(node) => {
            let Fused { out, saved } = forward(&op, x, true);
            node.finish(saved, out)
        }
        OpsKind::UnTracked(node) => node.finish(forward(&op, x, false).out),
    }
}

#[derive(Debug)]
struct Node<B: Backend, O, const N: usize> {
    op: O,
    gradient: Gradient<B, O>,
    present: [bool; N],
}

impl<B: Backend, O: FusedOp, const N: usize> Backward<B, N> for Node<B, O, N> {
    type State = Operands<B>;

    fn backward(self, ops: Ops<Operands<B>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let needed: [bool; N] =
            std::array::from_fn(|i| self.present[i] && ops.parents[i].is_some());
        let upstream = Upstream { saved: ops.state, grad, needs_grad: &needed };
        let gradients = (self.gradient)(&self.op, upstream);
        for (i, (parent, gradient)) in ops.parents.into_iter().zip(gradients.tensors).enumerate() {
            if let (Some(parent), Some(gradient), true) = (parent, gradient, needed[i]) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// The operator on tensors.
pub(crate) fn fused<O: FusedOp, const D: usize>(op: O, x: Operands<Dispatch>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused(op, x))
}

/// The fused forms of an operator, `forward` and `gradient` of its modules `cpu`, for `f32`, and `cube`.
macro_rules! forms {
    ($($module:ident),+) => {
        $($crate::ops::op::forms!(@$module);)+
    };
    (@cpu) => {
        #[cfg(feature = "flex")]
        fn cpu(
            dtype: burn::tensor::DType,
        ) -> Option<$crate::ops::op::Form<burn::backend::Flex, Self>> {
            let derivative = $crate::ops::op::Derivative::ByHand(cpu::gradient);
            let form = $crate::ops::op::Form { forward: cpu::forward, derivative };
            (dtype == burn::tensor::DType::F32).then_some(form)
        }
    };
    (@cube) => {
        #[cfg(feature = "cube")]
        fn cube() -> Option<$crate::ops::op::Form<burn_cubecl::CubeBackend, Self>> {
            let derivative = $crate::ops::op::Derivative::ByHand(cube::gradient);
            Some($crate::ops::op::Form { forward: cube::forward, derivative })
        }
    };
}
pub(crate) use forms;

#[cfg(test)]
mod tests {
    #[test]
    fn definitions_end_with_a_panic() {
        let nested = || super::by_definition(|| super::by_definition(|| panic!("in an operator")));
        assert!(std::panic::catch_unwind(nested).is_err());
        assert!(!super::BY_DEFINITION.get());
    }
}
