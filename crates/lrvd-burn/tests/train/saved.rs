//! A saved adapter answers as the model that it was taken from.

use lrvd_burn::model::ranks;
use lrvd_burn::train::{Inputs, Method, load_adapter};

use crate::net::{config, examples, net, pruned, run, trained};

#[test]
fn mean_and_draws_come_back_bit_for_bit() {
    let run = trained(run(pruned(), &config(8)));
    assert!(ranks(&run.state.model)[0].1 < 5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    run.save(&path).unwrap();

    let mut loaded = net();
    load_adapter(&mut loaded, &path).unwrap();
    let asked = examples(9, 20).inputs;
    let inputs = Inputs::new(&asked);
    for draws in [0, 3] {
        let expected = run.predict(&inputs, draws).unwrap();
        assert_eq!(run.method.predict(&loaded, &inputs, draws).unwrap(), expected);
        assert_eq!((expected.members(), expected.rows, expected.width), (draws.max(1), 20, 3));
        let answers = expected.classes().unwrap();
        let sampled = answers.iter().any(|answer| answer.mutual_information > Some(0.0));
        assert_eq!(sampled, draws > 0);
        assert!(answers.iter().all(|a| (a.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-6));
    }
    // Draws of a smaller number are the first ones of a larger.
    let three = run.predict(&inputs, 3).unwrap();
    assert_eq!(run.predict(&inputs, 2).unwrap(), three.first(2));

    let failed = run.save(&path).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::File { .. }), "{failed}");
}
