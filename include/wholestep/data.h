// Training data from files: NumPy arrays, tables as CSV, IDX (the format of MNIST), safetensors. The readers are strict: a file that is
// not what it claims is an Error that names the file and the fault, and nothing is allocated by numbers that only the file claims.
//
//   ws::Dataset data = ws::load_dataset("fashion-mnist");
//   trainer.fit(data.X, data.y, {.epochs = 5, .X_val = data.X_val, .y_val = data.y_val});
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "wholestep/tensor.h"

namespace ws {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// A NumPy array (.npy, versions 1 to 3, either byte order, either order of elements). f4 and f2 become f32, f8 f64, b1 boolean, u4 u32,
/// other whole numbers i32 (an Error where a value does not fit). Text, objects and records are an Error.
Tensor load_npy(const std::string& path);
/// The arrays of an .npz archive (stored or deflated) by name, in the archive's order.
NamedTensors load_npz(const std::string& path);
/// Row-major; bf16 is written as f4. Written beside its place and renamed.
void save_npy(const std::string& path, const Tensor& tensor);
/// Stored, not compressed. Names must be unique.
void save_npz(const std::string& path, const NamedTensors& tensors);

/// A table of numbers.
struct Table {
  std::vector<std::string> columns;  ///< names; empty where the file has none
  Tensor values;                     ///< f32 [rows, columns]
};
/// Numbers separated by commas, in a .tsv file by tabs, one row a line (RFC 4180: fields may be quoted). The first line names the columns
/// if any of its fields is not a number; no two names are equal. Every row has as many fields as the first; an empty or infinite field,
/// NaN or text is an Error that names line and column.
Table load_csv(const std::string& path);

/// An IDX file, or one compressed by gzip (".gz"): whole numbers become i32, floats f32, doubles f64.
Tensor load_idx(const std::string& path);
/// An IDX file of bytes [N, H, W] as images f32 [N, H, W, 1] from 0 to 1.
Tensor load_idx_images(const std::string& path);

/// Samples to train on and, where there are any, to validate on.
struct Dataset {
  Tensor X, y;          ///< [N, ..]; f32 or i32. y: labels i32 [N], or numbers f32
  Tensor X_val, y_val;  ///< undefined where there are none
};

/// `source` is one of:
/// - "fashion-mnist": as Debian's package dataset-fashion-mnist installs it; images f32 [N, 28, 28, 1], 60,000 and 10,000;
/// - a folder with the four files of such a set (train-images-idx3-ubyte, .., t10k-labels-idx1-ubyte, each with or without .gz);
/// - FILE.npz or FILE.safetensors with the arrays X, y and, both or neither, X_val, y_val;
/// - FILE.csv, FILE.tsv: y is the column `target`, or else the last one, as f32 [N, 1]; X is the others. Extensions in any case.
Dataset load_dataset(const std::string& source, const std::string& target = "");

}  // namespace ws
