//! The cost of Lockstep for programs that gain nothing by it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{self, wrapped};

/// The name of the file in a record's directory: what `lockstep-bench costs --json` printed.
pub const FILE: &str = "costs.json";

/// What `lockstep-bench` is called with, and for a try of the machinery.
pub const FULL: &str = "costs --rounds 3 --json";
pub const SHORT: &str = "costs --rounds 2 --seconds 0.01 --hosts 50 --json";

/// The same for the versions of OpenSSL that the matrix tries; and for those whose libraries the
/// program is not linked to.
pub const BRIEF: &str = "costs start read context sign verify keygen-p256 keygen-x25519 fork forked \
                         process command --rounds 5 --seconds 0.05 --json";
pub const BRIEF_COMMAND: &str = "costs command --rounds 5 --seconds 0.05 --json";

/// Ratios from here on are a cost that is worth a word.
const WORTH: f64 = 1.03;

/// That document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub rows: Vec<Cost>,
}

/// One row of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub name: String,
    /// In words.
    pub title: String,
    /// `ms` of CPU time, or `KiB` of memory.
    pub unit: String,
    pub stock: f64,
    pub lockstep: f64,
    /// Lockstep over OpenSSL alone: the median of the rounds, the least and the greatest.
    pub ratio: f64,
    pub least: f64,
    pub most: f64,
}

/// The rows of a document.
pub fn parse(document: &Value) -> Option<Vec<Cost>> {
    File::deserialize(document).ok().map(|file| file.rows)
}

/// The line that stands before what gains; empty without such rows.
pub fn in_words(costs: &[Cost]) -> String {
    let timed: Vec<&Cost> = costs.iter().filter(|cost| cost.unit == "ms").collect();
    let most = timed
        .iter()
        .max_by(|one, other| one.ratio.total_cmp(&other.ratio));
    let Some(most) = most else {
        return String::new();
    };
    let above = timed.iter().filter(|cost| cost.ratio > WORTH).count();
    wrapped(&match above {
        0 => "What gains nothing takes no more CPU time than OpenSSL alone, within 3 %.".to_owned(),
        _ => format!(
            "**What gains nothing may cost something**: {above} of {} such rows take more CPU time \
             than OpenSSL alone, by more than 3 %, and the most {:.2} times as much ({}).",
            timed.len(),
            most.ratio,
            most.title
        ),
    })
}

/// The table, where there are such rows.
pub fn section(costs: &[Cost]) -> String {
    let row = |cost: &Cost| {
        let value = |value: f64| format!("{value:.3} {}", cost.unit);
        vec![
            cost.title.clone(),
            value(cost.stock),
            value(cost.lockstep),
            format!("{:.2} ({:.2}–{:.2})", cost.ratio, cost.least, cost.most),
        ]
    };
    text::section(
        "What gains nothing",
        "`lockstep-bench costs`: what a program does with OpenSSL beside the work that lanes \
         share, in CPU time or memory. The ratio is the median of the rounds, with the least and \
         the greatest.",
        "what | OpenSSL alone | with Lockstep | Lockstep over OpenSSL",
        costs.iter().map(row),
    )
}

/// What costs more than it did, what costs less, and how many rows did neither: a ratio beyond all
/// of the earlier rounds, and more than 3 % away from their median.
pub fn verdict(now: &[Cost], before: &[Cost]) -> String {
    let (mut out, mut same, mut all) = (String::new(), 0, 0);
    for cost in now {
        let Some(earlier) = before.iter().find(|earlier| earlier.name == cost.name) else {
            continue;
        };
        all += 1;
        let word = if cost.ratio > earlier.most && cost.ratio > WORTH * earlier.ratio {
            "more"
        } else if cost.ratio < earlier.least && cost.ratio < earlier.ratio / WORTH {
            "less"
        } else {
            same += 1;
            continue;
        };
        out += &format!(
            "costs {word}: {}: {:.3} of OpenSSL alone, was {:.3}\n",
            cost.name, cost.ratio, earlier.ratio
        );
    }
    out + &format!("costs as before: {same} of {all} rows\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, ratio: f64, least: f64, most: f64) -> Cost {
        Cost {
            name: name.to_owned(),
            title: format!("the {name}"),
            unit: "ms".to_owned(),
            stock: 2.0,
            lockstep: 2.0 * ratio,
            ratio,
            least,
            most,
        }
    }

    #[test]
    fn each_row_is_shown_and_survives_its_file() {
        let mut costs = vec![cost("start", 1.25, 1.1, 1.5), cost("fork", 1.02, 0.9, 1.1)];
        costs.push(Cost {
            unit: "KiB".to_owned(),
            ..cost("hosts", 9.0, 9.0, 9.0)
        });
        let table = section(&costs);
        let row = "| the start | 2.000 ms | 2.500 ms | 1.25 (1.10–1.50) |\n";
        assert!(table.contains(row), "{table}");
        assert!(table.ends_with("| the hosts | 2.000 KiB | 18.000 KiB | 9.00 (9.00–9.00) |\n"));
        let words = in_words(&costs).replace('\n', " ");
        let expected = "1 of 2 such rows take more CPU time than OpenSSL alone, by more than 3 %, \
                        and the most 1.25 times as much (the start)";
        assert!(words.contains(expected), "{words}");
        assert_eq!(parse(&serde_json::json!({ "rows": costs })), Some(costs));
    }

    #[test]
    fn a_record_without_them_shows_nothing() {
        assert_eq!(
            (section(&[]), in_words(&[])),
            (String::new(), String::new())
        );
        assert_eq!(parse(&serde_json::json!({})), None);
        let none = in_words(&[cost("start", 1.03, 1.0, 1.1)]);
        assert!(
            none.starts_with("What gains nothing takes no more"),
            "{none}"
        );
    }

    #[test]
    fn both_directions_are_seen_and_noise_is_not() {
        let before = [
            cost("worse", 1.1, 1.05, 1.15),
            cost("better", 1.5, 1.4, 1.6),
            cost("noisy", 1.1, 0.8, 1.6),
            cost("close", 1.1, 1.09, 1.11),
            cost("gone", 1.1, 1.0, 1.2),
        ];
        let now = [
            cost("worse", 1.2, 1.1, 1.3),
            cost("better", 1.01, 0.9, 1.1),
            cost("noisy", 1.4, 1.0, 1.8),
            cost("close", 1.12, 1.0, 1.2),
            cost("new", 5.0, 5.0, 5.0),
        ];
        let expected = "costs more: worse: 1.200 of OpenSSL alone, was 1.100\n\
                        costs less: better: 1.010 of OpenSSL alone, was 1.500\n\
                        costs as before: 2 of 4 rows\n";
        assert_eq!(verdict(&now, &before), expected);
    }
}
