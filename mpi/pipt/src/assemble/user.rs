//! What kernels of users are asked for.

use super::{AssembleError, Assembled, Image, edge};
use crate::graph::Shape;
use crate::kernel;
use crate::operation::{Edge, User};
use crate::parameter::{Value, Values};
use std::sync::Arc;

impl Assembled {
    pub(super) fn user(&mut self, of: &Image, values: &Values) -> Result<Image, AssembleError> {
        let name = values.word("kernel").unwrap_or_default();
        let kernel = kernel::of(name).map_err(AssembleError::User)?;
        let shape = self.graph.shape(of.node).clone();
        let kind = kernel.gives(shape.kind);
        let made = kernel.bands();
        let named = |band: &String| {
            let named = made
                .iter()
                .map(|made| match (band.as_str(), made.as_str()) {
                    ("", made) => made.to_owned(),
                    (band, "") => band.to_owned(),
                    (band, made) => format!("{band}: {made}"),
                });
            named.collect::<Vec<_>>()
        };
        let bands: Vec<String> = shape.bands.iter().flat_map(named).collect();
        let count = bands.len();
        let edge = edge(values);
        let operation = User {
            kernel: Arc::clone(&kernel),
            name: name.to_owned(),
            parameters: match values.get("parameters") {
                Some(Value::Numbers(numbers)) => numbers.clone(),
                _ => Vec::new(),
            },
            edge,
            fill: values.flag("fill"),
            kind,
        };
        let made = Shape {
            size: shape.size,
            kind,
            nodata: match kind.is_float() {
                true => Some(f64::NAN),
                false => shape.nodata,
            },
            bands,
        };
        let node = self.graph.make(&[of.node], made, Box::new(operation));
        Ok(Image {
            node: node.map_err(AssembleError::Graph)?,
            bands: (0..).take(count).collect(),
            has_holes: of.has_holes || edge == Edge::Nodata,
            scales: Vec::new(),
            bounds: vec![None; count],
            ..of.clone()
        })
    }
}
