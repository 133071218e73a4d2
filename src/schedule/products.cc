#include "schedule/products.h"

#include <optional>
#include <utility>

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

/// An operand with its matrix dims in logical order and its leading dims apart.
struct Operand {
  View view;
  int64_t rows() const { return view.dims[-2]; }
  int64_t columns() const { return view.dims[-1]; }
  int64_t row_stride() const { return view.strides[at(view.dims.rank() - 2)]; }
  int64_t column_stride() const { return view.strides[at(view.dims.rank() - 1)]; }
  int leading() const { return view.dims.rank() - 2; }
  int64_t batch() const {
    int64_t n = 1;
    for (int i = 0; i < leading(); ++i) n *= view.dims[i];
    return n;
  }
  /// One stride for all leading dims, if there is one. 0 dims: 0.
  std::optional<int64_t> batch_stride() const {
    int64_t stride = 0, below = 1;
    bool first = true;
    for (int i = leading() - 1; i >= 0; --i) {
      if (view.dims[i] == 1) continue;
      if (first)
        stride = view.strides[at(i)];
      else if (view.strides[at(i)] != stride * below)
        return std::nullopt;
      first = false;
      below *= view.dims[i];
    }
    return stride;
  }
};

Operand logical(View v, bool transposed) {
  if (!transposed) return {v};
  const int r = v.dims.rank();
  std::vector<int64_t> dims(v.dims.begin(), v.dims.end());
  std::swap(dims[at(r - 1)], dims[at(r - 2)]);
  std::swap(v.strides[at(r - 1)], v.strides[at(r - 2)]);
  v.dims = Shape(dims);
  return {v};
}

void make_dense(Operand& x, int input, const std::function<int(const View&, int)>& dense) {
  x.view.buffer = dense(x.view, input);
  x.view.offset = 0;
  x.view.strides = dense_strides(x.view.dims);
}

View matrix(const Operand& x, int64_t batch, int64_t rows, int64_t batch_stride) {
  View v;
  v.buffer = x.view.buffer;
  v.offset = x.view.offset;
  v.dims = Shape{batch, rows, x.columns()};
  v.strides = {batch_stride, x.row_stride(), x.column_stride()};
  return v;
}

}  // namespace

GemmCall build_product(View a_view, View b_view, bool transpose_a, bool transpose_b,
                       const std::function<int(const View&, int)>& dense) {
  Operand a = logical(a_view, transpose_a), b = logical(b_view, transpose_b);
  GemmCall call;
  call.n = b.columns();
  call.k = a.columns();
  if (b.leading() == 0) {
    // One matrix for all rows: leading dims are more rows, where one stride walks them.
    if (!a.batch_stride()) make_dense(a, 0, dense);
    const int64_t stride = *a.batch_stride();
    if (a.batch() == 1 || stride == a.row_stride() * a.rows() || a.rows() == 1) {
      call.m = a.batch() * a.rows();
      call.a = matrix(a, 1, call.m, 0);
      if (a.rows() == 1 && a.batch() > 1) call.a.strides[1] = stride;
      call.b = matrix(b, 1, b.rows(), 0);
      return call;
    }
    call.batch = a.batch();
    call.m = a.rows();
    call.a = matrix(a, call.batch, call.m, stride);
    call.b = matrix(b, call.batch, b.rows(), 0);
    return call;
  }
  if (!a.batch_stride()) make_dense(a, 0, dense);
  if (!b.batch_stride()) make_dense(b, 1, dense);
  call.batch = a.batch();
  call.m = a.rows();
  call.a = matrix(a, call.batch, call.m, *a.batch_stride());
  call.b = matrix(b, call.batch, b.rows(), *b.batch_stride());
  return call;
}

}  // namespace ws
