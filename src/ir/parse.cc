#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "ir/graph.h"
#include "ir/lexer.h"
#include "ir/op_check.h"
#include "ir/text.h"
#include "support/error.h"

namespace ws {

namespace {

// One method a rule of the grammar (docs/ir.md). Nothing nests, so there is no recursion, and memory is bounded by the text.
class Parser {
 public:
  Parser(std::string_view text, std::string_view file_name) : lexer_(text, file_name) {}

  Graph parse_graph() {
    lexer_.expect("graph");
    graph_.name = parse_name("the graph's name");
    lexer_.expect("(");
    if (!lexer_.accept(")")) {
      do parse_input();
      while (lexer_.accept(","));
      lexer_.expect(")");
    }
    lexer_.expect("{");
    while (lexer_.peek().kind == Token::Kind::value) parse_node();
    if (!lexer_.accept("return")) lexer_.fail_expected("a node or 'return'");
    if (lexer_.peek().kind == Token::Kind::value) {
      do parse_output();
      while (lexer_.accept(","));
    }
    lexer_.expect("}");
    if (lexer_.peek().kind != Token::Kind::end) lexer_.fail_expected("the end of the text");
    return std::move(graph_);
  }

 private:
  std::string parse_name(std::string_view what) {
    using Kind = Token::Kind;
    const Kind kind = lexer_.peek().kind;
    if (kind == Kind::string) return lexer_.take().string;
    // A bare name may begin with digits; a '+' only ever comes from a number.
    if ((kind == Kind::word || kind == Kind::integer || kind == Kind::number) &&
        lexer_.peek().text.find('+') == std::string_view::npos)
      return std::string(lexer_.take().text);
    lexer_.fail_expected(what);
  }

  void define(const Token& name, Value v) {
    if (!values_.emplace(name.text, v).second) lexer_.fail_at(name, fmt::format("%{} is defined twice", name.text));
  }

  Token take_value(std::string_view what) {
    if (lexer_.peek().kind != Token::Kind::value) lexer_.fail_expected(what);
    return lexer_.take();
  }

  Value parse_use() {
    const Token name = take_value("a value");
    const auto found = values_.find(name.text);
    if (found == values_.end()) lexer_.fail_at(name, fmt::format("%{} is used before it is defined", name.text));
    return found->second;
  }

  int64_t parse_integer(std::string_view what) {
    if (lexer_.peek().kind != Token::Kind::integer) lexer_.fail_expected(what);
    const Token token = lexer_.take();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error != std::errc() || end != token.text.data() + token.text.size())
      lexer_.fail_at(token, fmt::format("the integer {} does not fit 64 bits", token.text.substr(0, 40)));
    return value;
  }

  std::vector<int64_t> parse_integers(size_t max_count) {
    std::vector<int64_t> list;
    lexer_.expect("[");
    if (lexer_.accept("]")) return list;
    do {
      if (list.size() == max_count) lexer_.fail_here(fmt::format("more than {} entries", max_count));
      list.push_back(parse_integer("an integer"));
    } while (lexer_.accept(","));
    lexer_.expect("]");
    return list;
  }

  Type parse_type() {
    const Token start = lexer_.peek();
    const auto dtype = dtype_from_name(start.text);
    if (start.kind != Token::Kind::word || !dtype)
      lexer_.fail_expected("a type such as f32[2, 3] (f32, bf16, f64, i32, u32, bool)");
    lexer_.take();
    const std::vector<int64_t> dims = parse_integers(kMaxRank);
    return at_place(start, [&] { return Type{*dtype, Shape(dims)}; });
  }

  // Runs a step whose errors know no place, and adds it.
  template <class Step>
  std::invoke_result_t<Step&> at_place(const Token& place, Step&& step) {
    try {
      return step();
    } catch (const Error& e) {
      lexer_.fail_at(place, e.what());
    }
  }

  void parse_input() {
    const Token name = take_value("an input such as %0 \"x\": f32[2, 3]");
    std::string label = lexer_.peek().kind == Token::Kind::string ? lexer_.take().string : std::string(name.text);
    const bool is_new = input_names_.insert(label).second;
    lexer_.expect(":");
    const Type type = parse_type();
    define(name, at_place(name, [&] { return graph_.add_input(label, type); }));
    if (!is_new) lexer_.fail_at(name, fmt::format("a second input is named \"{}\"", label));
  }

  double parse_number(const Token& token) {
    std::string_view text = token.text;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_nan = end != text.data() && std::isnan(value);
    if (error != std::errc() || end != text.data() + text.size() || is_nan)
      lexer_.fail_at(token, fmt::format("'{}' is not a number that a double can hold", text.substr(0, 40)));
    return value;
  }

  double parse_nan() {
    if (!lexer_.accept("(")) return std::bit_cast<double>(kPlainNan);
    const Token token = lexer_.peek();
    uint64_t bits = 0;
    const std::string_view digits = token.text.substr(std::min<size_t>(2, token.text.size()));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
    if (!token.text.starts_with("0x") || error != std::errc() || end != digits.data() + digits.size() ||
        !std::isnan(std::bit_cast<double>(bits)))
      lexer_.fail_expected("the 64 bits of a NaN, such as 0x7ff8000000000001");
    lexer_.take();
    lexer_.expect(")");
    return std::bit_cast<double>(bits);
  }

  AttrValue parse_attr_value(const AttrSpec* spec) {
    const Token& next = lexer_.peek();
    const bool wants_number = spec && spec->kind == AttrSpec::Kind::number;
    switch (next.kind) {
      case Token::Kind::string: return lexer_.take().string;
      case Token::Kind::integer:
        if (wants_number) return parse_number(lexer_.take());
        return parse_integer("an integer");
      case Token::Kind::number: return parse_number(lexer_.take());
      case Token::Kind::word:
        if (lexer_.accept("true")) return true;
        if (lexer_.accept("false")) return false;
        if (lexer_.accept("inf")) return HUGE_VAL;
        if (lexer_.accept("nan")) return parse_nan();
        if (const auto dtype = dtype_from_name(next.text)) {
          lexer_.take();
          return *dtype;
        }
        break;
      case Token::Kind::punctuation:
        if (next.text == "[") return parse_integers(SIZE_MAX);
        break;
      default: break;
    }
    lexer_.fail_expected("an attribute's value: true, 1, 1.5, \"text\", [1, 2] or a dtype");
  }

  Attrs parse_attrs(const OpDef& op) {
    Attrs attrs;
    if (!lexer_.accept("{") || lexer_.accept("}")) return attrs;
    do {
      if (lexer_.peek().kind != Token::Kind::word) lexer_.fail_expected("the name of an attribute");
      const Token name = lexer_.take();
      const AttrSpec* spec = nullptr;
      for (const AttrSpec& s : op.attrs)
        if (s.name == name.text) spec = &s;
      if (!spec) lexer_.fail_at(name, fmt::format("{} has no attribute '{}'", op.name, name.text));
      if (attrs.find(name.text)) lexer_.fail_at(name, fmt::format("attribute '{}' is given twice", name.text));
      lexer_.expect("=");
      attrs.set(name.text, parse_attr_value(spec));
    } while (lexer_.accept(","));
    lexer_.expect("}");
    return attrs;
  }

  int parse_checkpoint() {
    const Token place = lexer_.peek();
    const int64_t number = parse_integer("the number of a checkpoint");
    if (number == 0 || number > INT32_MAX || number < -INT32_MAX)
      lexer_.fail_at(place, "the number of a checkpoint is not 0 and below 2^31");
    return static_cast<int>(number);
  }

  void parse_node() {
    std::vector<Token> names{take_value("a value")};
    while (lexer_.accept(",")) names.push_back(take_value("a value"));
    lexer_.expect("=");
    const Token op_name = lexer_.peek();
    if (op_name.kind != Token::Kind::word) lexer_.fail_expected("the name of an op");
    const OpDef* op = find_op(op_name.text);
    if (!op) lexer_.fail_here(fmt::format("no op is named '{}'", op_name.text.substr(0, 40)));
    lexer_.take();
    std::vector<Value> inputs;
    if (lexer_.peek().kind == Token::Kind::value) {
      do inputs.push_back(parse_use());
      while (lexer_.accept(","));
    }
    Attrs attrs = parse_attrs(*op);
    if (const std::string mistake = find_mistake(*op, inputs.size(), attrs); !mistake.empty()) lexer_.fail_at(op_name, mistake);
    if (names.size() != static_cast<size_t>(op->num_results))
      lexer_.fail_at(names.front(), fmt::format("{} has {} results, {} named", op->name, op->num_results, names.size()));
    lexer_.expect(":");
    std::vector<std::pair<Token, Type>> declared;
    do {
      const Token place = lexer_.peek();
      declared.emplace_back(place, parse_type());
    } while (lexer_.accept(","));
    if (declared.size() != names.size())
      lexer_.fail_at(declared.front().first, fmt::format("{} type(s) for {} result(s)", declared.size(), names.size()));
    std::string path;
    if (lexer_.accept("@")) path = parse_name("a path");
    const int checkpoint = lexer_.accept("checkpoint") ? parse_checkpoint() : 0;
    const std::vector<Value> results =
        at_place(op_name, [&] { return graph_.add_node(*op, std::move(inputs), std::move(attrs), std::move(path), checkpoint); });
    for (size_t i = 0; i < results.size(); ++i) {
      const Type& inferred = graph_.type_of(results[i]);
      if (declared[i].second != inferred)
        lexer_.fail_at(declared[i].first,
                       fmt::format("{} gives {} here, not {}", op->name, inferred.str(), declared[i].second.str()));
      define(names[i], results[i]);
    }
  }

  void parse_output() {
    const Value v = parse_use();
    const Token place = lexer_.peek();
    if (place.kind != Token::Kind::string) lexer_.fail_expected("the output's name in quotes");
    std::string label = lexer_.take().string;
    int64_t donates = -1;
    if (lexer_.accept("donates")) {
      const Token number = lexer_.peek();
      donates = parse_integer("the number of an input");
      if (donates < 0 || donates >= static_cast<int64_t>(graph_.inputs().size()))
        lexer_.fail_at(number, fmt::format("there is no input {}: the graph has {}", donates, graph_.inputs().size()));
      const Type& from = graph_.type_of(graph_.inputs()[static_cast<size_t>(donates)].value);
      if (from != graph_.type_of(v))
        lexer_.fail_at(number, fmt::format("input {} is {}, the output {}: a donated output has its input's type", donates,
                                           from.str(), graph_.type_of(v).str()));
      for (const GraphOutput& other : graph_.outputs())
        if (other.donates_input == donates) lexer_.fail_at(number, fmt::format("input {} is donated twice", donates));
    }
    graph_.add_output(v, std::move(label), static_cast<int>(donates));
  }

  Lexer lexer_;
  Graph graph_;
  std::unordered_map<std::string_view, Value> values_;  // views of the text
  std::unordered_set<std::string> input_names_;
};

}  // namespace

Graph parse(std::string_view text, std::string_view file_name) { return Parser(text, file_name).parse_graph(); }

}  // namespace ws
