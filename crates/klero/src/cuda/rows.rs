//! Rows on their way to a card and back.

use super::error::check;
use super::launch::Params;
use super::{Bias, CudaError, Device, Inputs, Outputs, Workspace};
use crate::engine::plan::check_edits;
use crate::hash::Stream;
use crate::params::Penalties;
use crate::{Draw, Error, Input, Row, RowError};
use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr};

/// A token that a card drew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The token.
    pub token: u32,
    /// Its score x + g, to 44 bits.
    pub score: f64,
    /// Its logprob in the processed distribution.
    pub logprob: f64,
    /// ln Σ exp(x) over all valid ids.
    pub log_normalizer: f64,
    /// The seed used: the row's, or its sample's.
    pub seed: u64,
}

/// The arrays of rows on the card.
pub(super) struct Uploaded {
    temperature: CudaSlice<f32>,
    seed: CudaSlice<u64>,
    position: CudaSlice<u64>,
    kind: CudaSlice<u8>,
    allowed: Option<(CudaSlice<u32>, usize)>,
    bias: Option<[CudaSlice<u32>; 3]>,
}

impl Uploaded {
    pub fn new(device: &Device, rows: &[Row], vocabulary: usize) -> Result<Self, CudaError> {
        for (row, asked) in rows.iter().enumerate() {
            supported(row, asked, vocabulary)?;
        }
        let kinds: Vec<u8> = rows.iter().map(kind).collect();
        let temperatures: Vec<f32> = rows.iter().map(|row| row.sampling.temperature).collect();
        let seeds: Vec<u64> = rows.iter().map(|row| row.sampling.seed()).collect();
        let positions: Vec<u64> = rows.iter().map(|row| row.position).collect();
        Ok(Self {
            temperature: upload(device, &temperatures)?,
            seed: upload(device, &seeds)?,
            position: upload(device, &positions)?,
            kind: upload(device, &kinds)?,
            allowed: masks(rows, vocabulary)
                .map(|masks| upload(device, &masks))
                .transpose()?
                .map(|m| (m, words(vocabulary))),
            bias: biases(rows)
                .map(|lists| -> Result<_, CudaError> {
                    let [start, ids, values] = lists;
                    Ok([upload(device, &start)?, upload(device, &ids)?, upload(device, &values)?])
                })
                .transpose()?,
        })
    }

    pub fn inputs(&self, rows: usize, samples: usize) -> Inputs {
        Inputs {
            rows,
            samples,
            temperature: address(&self.temperature),
            seed: address(&self.seed),
            position: address(&self.position),
            kind: address(&self.kind),
            allowed: self.allowed.as_ref().map_or(0, |allowed| address(&allowed.0)),
            allowed_words: self.allowed.as_ref().map_or(0, |allowed| allowed.1),
            bias: self.bias.as_ref().map(|[start, ids, values]| Bias {
                start: address(start),
                ids: address(ids),
                values: address(values),
            }),
            ..Inputs::default()
        }
    }
}

fn words(vocabulary: usize) -> usize {
    vocabulary.div_ceil(32)
}

fn address<T>(slice: &CudaSlice<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

fn upload<T: DeviceRepr>(device: &Device, values: &[T]) -> Result<CudaSlice<T>, CudaError> {
    check("cuMemcpyHtoD", device.stream().clone_htod(values))
}

/// Whether the card draws what a row asks for.
fn supported(row: usize, asked: &Row, vocabulary: usize) -> Result<(), CudaError> {
    let sampling = &asked.sampling;
    let penalties = sampling.penalties != Penalties::OFF;
    let refused = [
        (sampling.draw != Draw::Gumbel, "an inverse-CDF draw"),
        (sampling.top_p < 1.0, "top_p"),
        (sampling.top_k.is_some_and(|k| k > 1), "top_k above 1"),
        (sampling.min_p > 0.0, "min_p"),
        (penalties, "a penalty"),
        (sampling.top_logprobs > 0, "top_logprobs"),
        (asked.draft.is_some(), "a draft"),
        (asked.vocabulary.is_some_and(|v| v != vocabulary), "a vocabulary of its own"),
    ];
    match refused.into_iter().find(|refused| refused.0) {
        Some((_, what)) => Err(CudaError::Unsupported { row, what }),
        None => Ok(check_edits(row, asked, vocabulary)?),
    }
}

fn kind(row: &Row) -> u8 {
    let argmax = row.sampling.top_k == Some(1);
    u8::from(row.stream == Stream::Draft) << 2 | u8::from(argmax) << 3
}

/// A bitmask for each row, if some row has one or bans.
fn masks(rows: &[Row], vocabulary: usize) -> Option<Vec<u32>> {
    let some = rows.iter().any(|row| row.edits.allowed.is_some() || row.edits.banned.is_some());
    some.then(|| {
        let mut masks = Vec::with_capacity(rows.len() * words(vocabulary));
        for row in rows {
            let from = masks.len();
            match row.edits.allowed {
                Some(allowed) => masks.extend(&allowed[..words(vocabulary)]),
                None => masks.resize(from + words(vocabulary), u32::MAX),
            }
            for id in row.edits.banned.into_iter().flatten() {
                masks[from + *id as usize / 32] &= !(1 << (id % 32));
            }
        }
        masks
    })
}

/// Where each row's biases begin, their ids, their values as bits; if some row has any.
fn biases(rows: &[Row]) -> Option<[Vec<u32>; 3]> {
    let some = rows.iter().any(|row| row.edits.bias.is_some());
    some.then(|| {
        let (mut start, mut ids, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            for (id, value) in row.edits.biases(0..u32::MAX) {
                ids.push(id);
                values.push(value.to_bits());
            }
            start.push(ids.len() as u32);
        }
        // An array on the card has at least one element.
        ids.push(0);
        values.push(0);
        [start, ids, values]
    })
}

/// The parameters of the kernels for `rows` rows from `first` on.
pub(super) fn params(inputs: &Inputs, workspace: &Workspace, first: usize, rows: usize) -> Params {
    let at = |address: u64, bytes: usize| if address == 0 { 0 } else { address + (first * bytes) as u64 };
    let own = workspace.at(first, inputs.samples);
    Params {
        temperature: at(inputs.temperature, 4),
        seed: at(inputs.seed, 8),
        position: at(inputs.position, 8),
        kind: at(inputs.kind, 1),
        allowed: at(inputs.allowed, inputs.allowed_words * 4),
        bias_start: inputs.bias.map_or(0, |bias| at(bias.start, 4)),
        bias_id: inputs.bias.map_or(0, |bias| bias.ids),
        bias: inputs.bias.map_or(0, |bias| bias.values),
        best: own.best,
        fault: own.fault,
        pairs: own.pairs,
        candidates: own.candidates,
        allowed_stride: inputs.allowed_words as u32,
        rows: rows as u32,
        samples: inputs.samples as u32,
        slots: workspace.slots as u32,
        ..Params::default()
    }
}

/// Whether a workspace is large enough, and nothing needed is missing.
pub(super) fn fits(inputs: &Inputs, workspace: &Workspace) -> Result<(), CudaError> {
    let shape = |text: String| Err(Error::Shape(text).into());
    if inputs.rows == 0 || inputs.rows > workspace.rows {
        return shape(format!("rows is {}, must be 1 to {}, those of the workspace", inputs.rows, workspace.rows));
    }
    if inputs.samples == 0 || inputs.samples > workspace.samples {
        return shape(format!(
            "samples is {}, must be 1 to {}, those of the workspace",
            inputs.samples, workspace.samples
        ));
    }
    for (name, address, alignment) in
        [("temperature", inputs.temperature, 4), ("seed", inputs.seed, 8), ("position", inputs.position, 8)]
    {
        if address == 0 || !address.is_multiple_of(alignment) {
            return Err(CudaError::Alignment { name, address, alignment });
        }
    }
    Ok(())
}

/// Results on the card.
pub(super) struct Received {
    rows: usize,
    samples: usize,
    token: CudaSlice<u32>,
    status: CudaSlice<u32>,
    score: CudaSlice<f64>,
    logprob: CudaSlice<f64>,
    log_normalizer: CudaSlice<f64>,
    device: Device,
}

impl Received {
    pub fn new(device: &Device, rows: usize, samples: usize) -> Result<Self, CudaError> {
        let stream = device.stream();
        let numbers = |count| check("cuMemAlloc", stream.alloc_zeros::<f64>(count));
        Ok(Self {
            rows,
            samples,
            token: check("cuMemAlloc", stream.alloc_zeros(rows * samples))?,
            status: check("cuMemAlloc", stream.alloc_zeros(rows))?,
            score: numbers(rows * samples)?,
            logprob: numbers(rows * samples)?,
            log_normalizer: numbers(rows)?,
            device: device.clone(),
        })
    }

    pub fn outputs(&self) -> Outputs {
        Outputs {
            token: address(&self.token),
            status: address(&self.status),
            score: address(&self.score),
            logprob: address(&self.logprob),
            log_normalizer: address(&self.log_normalizer),
            ..Outputs::default()
        }
    }

    /// Waits for the stream and reads them, by row and sample.
    pub fn read(&self, rows: &[Row]) -> Result<Vec<Vec<Result<Drawn, RowError>>>, CudaError> {
        let stream = self.device.stream();
        let numbers = |of: &CudaSlice<f64>| check("cuMemcpyDtoH", stream.clone_dtoh(of));
        let (score, logprob, log_normalizer) =
            (numbers(&self.score)?, numbers(&self.logprob)?, numbers(&self.log_normalizer)?);
        let token = check("cuMemcpyDtoH", stream.clone_dtoh(&self.token))?;
        let status = check("cuMemcpyDtoH", stream.clone_dtoh(&self.status))?;
        check("cuStreamSynchronize", stream.synchronize())?;
        let one = |row: usize, sample: usize| {
            let at = sample * self.rows + row;
            match error(row, status[row]) {
                Some(error) => Err(error),
                None => Ok(Drawn {
                    token: token[at],
                    score: score[at],
                    logprob: logprob[at],
                    log_normalizer: log_normalizer[row],
                    seed: rows[row].sampling.sample(sample as u64).seed(),
                }),
            }
        };
        Ok((0..self.rows).map(|row| (0..self.samples).map(|sample| one(row, sample)).collect()).collect())
    }
}

/// A row's status as its error.
fn error(row: usize, status: u32) -> Option<RowError> {
    let (input, id) = (Input::Logit, (status & 0xff_ffff) as usize);
    match status >> 24 {
        0 => None,
        1 => Some(RowError::Nan { row, input, id }),
        2 => Some(RowError::Infinite { row, input, id }),
        _ => Some(RowError::Empty { row, input }),
    }
}
