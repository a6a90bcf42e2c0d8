//! Texture, order statistics and noise of images of any size: the engine behind the command `pipt`.

#![forbid(unsafe_code)]

pub mod assemble;
pub mod blocks;
pub mod command;
pub mod compute;
pub mod execute;
pub mod experiment;
pub mod graph;
pub mod input;
pub mod job;
pub mod kernel;
pub mod manual;
pub mod operation;
pub mod output;
pub mod parameter;
pub mod place;
pub mod ranks;
pub mod routine;
pub mod show;
pub mod stop;
pub mod survey;
pub mod together;
pub mod verify;
pub mod work;
