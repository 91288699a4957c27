// libtutti_torch.so: see shim.h. No exception leaves a function of it. Its soname is libtorch.so: compiled packages ask
// for the library of that name, which has nothing of its own and stands for those that this one links.
#include "shim.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#ifndef TT_SOURCE
#define TT_SOURCE "unknown"
#endif

namespace {

using torch::jit::IValue;
using torch::jit::Stack;

// What a parameter of forward takes.
enum class Kind { Tensor, Optional, Tuple, List, Strings, Dict, Other };

const char *const kind_names[] = {"tensor", "optional", "tuple", "list", "strings", "dict", "other"};

struct Parameter {
	std::string name, type;
	Kind kind;
	int64_t count;           // leaves; -1 for any number
	bool may_lack;           // there is a default
	IValue fallback;
	int64_t first = 0;       // its first leaf
};

void say(char *why, const char *text) {
	size_t n = std::min(std::strlen(text), size_t(TT_TORCH_TEXT - 1));
	std::memcpy(why, text, n);
	why[n] = 0;
}

// Runs f and turns what it throws into text.
template <class F> bool guarded(char *why, F &&f) {
	try {
		f();
		return true;
	} catch (const c10::Error &e) {
		say(why, e.what_without_backtrace());
	} catch (const std::exception &e) {
		say(why, e.what());
	} catch (...) {
		say(why, "an exception of an unknown kind");
	}
	return false;
}

Kind kind_of(const c10::TypePtr &t, int64_t *count) {
	*count = 1;
	switch (t->kind()) {
	case c10::TypeKind::TensorType:
		return Kind::Tensor;
	case c10::TypeKind::OptionalType: {
		auto inner = t->castRaw<c10::OptionalType>()->getElementType();
		return inner->kind() == c10::TypeKind::TensorType ? Kind::Optional : Kind::Other;
	}
	case c10::TypeKind::ListType: {
		auto inner = t->castRaw<c10::ListType>()->getElementType();
		if (inner->kind() == c10::TypeKind::StringType) return Kind::Strings;
		*count = -1;
		return inner->kind() == c10::TypeKind::TensorType ? Kind::List : Kind::Other;
	}
	case c10::TypeKind::TupleType: {
		auto elements = t->castRaw<c10::TupleType>()->elements();
		*count = int64_t(elements.size());
		for (auto &e : elements) {
			if (e->kind() != c10::TypeKind::TensorType) return Kind::Other;
		}
		return Kind::Tuple;
	}
	case c10::TypeKind::DictType: {
		auto d = t->castRaw<c10::DictType>();
		*count = -1;
		bool fits = d->getKeyType()->kind() == c10::TypeKind::StringType &&
		            d->getValueType()->kind() == c10::TypeKind::TensorType;
		return fits ? Kind::Dict : Kind::Other;
	}
	default:
		return Kind::Other;
	}
}

// How many leaves a result of type t has, -1 when only a run can tell.
int64_t leaves_of(const c10::TypePtr &t) {
	int64_t count;
	switch (kind_of(t, &count)) {
	case Kind::Tensor:
	case Kind::Strings:
		return 1;
	case Kind::Tuple:
		return count;
	default:
		break;
	}
	if (auto tuple = t->castRaw<c10::TupleType>()) {
		int64_t n = 0;
		for (auto &e : tuple->elements()) {
			int64_t k = leaves_of(e);
			if (k < 0) return -1;
			n += k;
		}
		return n;
	}
	return -1;
}

at::Tensor input_tensor(const tt_torch_value &v) {
	// An empty tensor may have no memory, but an address is wanted.
	static char none[64];
	void *data = v.data != nullptr ? v.data : none;
	return at::from_blob(data, at::IntArrayRef(v.dims, size_t(v.rank)), at::TensorOptions(c10::ScalarType(v.type)));
}

// Reads strings of a length in 4 bytes each.
c10::List<std::string> input_strings(const tt_torch_value &v) {
	c10::List<std::string> list;
	const char *p = static_cast<const char *>(v.data);
	for (size_t left = v.bytes; left > 0;) {
		uint32_t n;
		TORCH_CHECK(left >= 4, "a string's length is cut off");
		std::memcpy(&n, p, 4);
		TORCH_CHECK(left - 4 >= n, "a string is cut off");
		list.push_back(std::string(p + 4, n));
		p += 4 + size_t(n), left -= 4 + size_t(n);
	}
	return list;
}

// What an output's handle points to.
struct Kept {
	at::Tensor tensor;
	std::optional<c10::List<std::string>> strings;
};

// Ends the run's outputs that were not taken.
void drop(tt_torch_call *c, size_t outs) {
	for (size_t i = 0; i < outs; i++) {
		tt_torch_free(c->out[i].handle);
		c->out[i].handle = nullptr;
	}
}

void give_tensor(tt_torch_value *v, at::Tensor t) {
	TORCH_CHECK(t.defined(), "an output is an undefined tensor");
	TORCH_CHECK(t.layout() == at::kStrided && !t.is_quantized() && !t.is_nested(), "an output is not a dense tensor");
	TORCH_CHECK(t.dim() <= TT_TORCH_RANK, "an output has ", t.dim(), " dimensions, at most ", TT_TORCH_RANK, " are possible");
	if (!t.device().is_cpu()) t = t.cpu();
	if (t.is_conj() || t.is_neg()) t = t.resolve_conj().resolve_neg();
	auto kept = std::make_unique<Kept>();
	kept->tensor = t.contiguous();
	v->data = kept->tensor.data_ptr();
	v->bytes = kept->tensor.nbytes();
	v->type = int32_t(kept->tensor.scalar_type());
	v->rank = int32_t(kept->tensor.dim());
	std::copy_n(kept->tensor.sizes().data(), v->rank, v->dims);
	v->handle = kept.release();
}

void give_strings(tt_torch_value *v, c10::List<std::string> list) {
	auto kept = std::make_unique<Kept>();
	v->bytes = 0;
	for (size_t i = 0; i < list.size(); i++) v->bytes += 4 + static_cast<const std::string &>(list.get(i)).size();
	v->data = nullptr;
	v->type = TT_TORCH_STRINGS;
	v->rank = 1, v->dims[0] = int64_t(list.size());
	kept->strings = std::move(list);
	v->handle = kept.release();
}

bool is_strings(const IValue &v) {
	return v.isList() && v.type()->castRaw<c10::ListType>() != nullptr &&
	       v.type()->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::StringType;
}

void give(tt_torch_value *v, const IValue &leaf) {
	if (leaf.isTensor()) return give_tensor(v, leaf.toTensor());
	if (is_strings(leaf)) return give_strings(v, leaf.to<c10::List<std::string>>());
	TORCH_CHECK(false, "an output is of type ", leaf.type()->repr_str(), ", expected a tensor or List[str]");
}

// Appends the leaves of a result: what tuples and lists of tensors are made of.
void flatten(const IValue &v, std::vector<IValue> *out) {
	if (v.isTuple()) {
		for (const auto &e : v.toTupleRef().elements()) flatten(e, out);
	} else if (v.isTensorList()) {
		for (const at::Tensor &t : v.toTensorVector()) out->emplace_back(t);
	} else if (v.isGenericDict()) {
		for (const auto &e : v.toGenericDict()) flatten(e.value(), out);
	} else {
		out->push_back(v);
	}
}

}  // namespace

struct tt_torch_model {
	std::string device;
	bool inference = false, plain = false, clean = false;
	bool writes = false;  // forward may write into its inputs
	std::unique_ptr<torch::jit::Module> module;
	torch::jit::Function *forward = nullptr;
	std::shared_ptr<torch::inductor::AOTIModelPackageLoader> package;
	std::vector<Parameter> parameters;
	c10::TypePtr result;

	int in_how = TT_TORCH_ORDER, out_how = TT_TORCH_ORDER;
	std::vector<int64_t> in_at, out_at, from;  // from: the input of each leaf, -1 for none
	std::vector<std::string> in_names, out_names;

	bool on_cpu() const { return device == "cpu"; }
};

namespace {

void read_schema(tt_torch_model *m) {
	auto method = m->module->get_method("forward");
	m->forward = &method.function();
	const auto &schema = m->forward->getSchema();
	const auto &arguments = schema.arguments();
	int64_t leaf = 0;
	for (size_t i = 1; i < arguments.size(); i++) {  // the first one is self
		const auto &a = arguments[i];
		Parameter p{a.name(), a.type()->repr_str(), Kind::Other, 1, false, IValue()};
		p.kind = kind_of(a.type(), &p.count);
		p.may_lack = a.default_value().has_value() || p.kind == Kind::Optional;
		if (a.default_value()) p.fallback = *a.default_value();
		p.first = leaf;
		leaf += std::max<int64_t>(p.count, 0);
		m->parameters.push_back(std::move(p));
	}
	m->result = schema.returns().empty() ? c10::NoneType::get() : schema.returns()[0].type();
	// Inputs are memory that others read too: a model that writes into them gets copies.
	auto graph = torch::jit::toGraphFunction(*m->forward).graph()->copy();
	torch::jit::Inline(*graph);
	torch::jit::AliasDb aliases(graph);
	for (size_t i = 1; i < graph->inputs().size(); i++) m->writes |= aliases.hasWriters(graph->inputs()[i]);
}

Stack arguments(const tt_torch_model *m, const tt_torch_value *in, const std::vector<IValue> &given) {
	Stack stack;
	stack.reserve(m->parameters.size() + 1);
	stack.emplace_back(m->module->_ivalue());
	for (const auto &p : m->parameters) {
		auto at = [&](int64_t k) -> const IValue & {
			static const IValue none;
			size_t leaf = size_t(p.first + k);
			int64_t from = leaf < m->from.size() ? m->from[leaf] : -1;
			return from < 0 || !in[from].use ? none : given[size_t(from)];
		};
		switch (p.kind) {
		case Kind::Tensor:
		case Kind::Optional:
		case Kind::Strings: {
			const IValue &v = at(0);
			TORCH_CHECK(!v.isNone() || p.may_lack, "argument '", p.name, "' of forward is not given");
			stack.push_back(v.isNone() ? p.fallback : v);
			break;
		}
		case Kind::Tuple: {
			std::vector<IValue> elements;
			for (int64_t k = 0; k < p.count; k++) {
				TORCH_CHECK(!at(k).isNone(), "element ", k, " of argument '", p.name, "' of forward is not given");
				elements.push_back(at(k));
			}
			stack.emplace_back(c10::ivalue::Tuple::create(std::move(elements)));
			break;
		}
		case Kind::List: {
			c10::List<at::Tensor> list;
			for (int64_t k = 0; size_t(p.first + k) < m->from.size(); k++) {
				if (!at(k).isNone()) list.push_back(at(k).toTensor());
			}
			stack.emplace_back(std::move(list));
			break;
		}
		case Kind::Dict: {
			c10::Dict<std::string, at::Tensor> dict;
			for (size_t i = 0; i < given.size(); i++) {
				if (in[i].use) dict.insert(m->in_names[i], given[i].toTensor());
			}
			stack.emplace_back(std::move(dict));
			break;
		}
		default:
			stack.push_back(p.fallback);
		}
	}
	return stack;
}

// Finds the outputs by position.
void give_in_order(const tt_torch_model *m, tt_torch_call *c, const IValue &result) {
	if (m->out_at.size() == 1 && m->out_at[0] == 0 && result.isTensor()) return give(&c->out[0], result);
	std::vector<IValue> leaves;
	flatten(result, &leaves);
	for (size_t i = 0; i < m->out_at.size(); i++) {
		TORCH_CHECK(size_t(m->out_at[i]) < leaves.size(), "output '", m->out_names[i], "' is number ", m->out_at[i],
		            ", the model made ", leaves.size());
		give(&c->out[i], leaves[size_t(m->out_at[i])]);
	}
}

void give_by_key(const tt_torch_model *m, tt_torch_call *c, const IValue &result) {
	TORCH_CHECK(result.isGenericDict(), "expected a dictionary, the model made ", result.type()->repr_str());
	auto dict = result.toGenericDict();
	for (size_t i = 0; i < m->out_names.size(); i++) {
		auto found = dict.find(IValue(m->out_names[i]));
		TORCH_CHECK(found != dict.end(), "the model's dictionary has no key '", m->out_names[i], "'");
		give(&c->out[i], found->value());
	}
}

void run_package(tt_torch_model *m, tt_torch_call *c, const std::vector<IValue> &given) {
	std::vector<at::Tensor> tensors;
	tensors.reserve(m->from.size());
	for (int64_t from : m->from) {
		TORCH_CHECK(from >= 0 && c->in[from].use, "argument ", tensors.size(), " of the package is not given");
		tensors.push_back(given[size_t(from)].toTensor());
	}
	auto results = m->package->run(tensors);
	for (size_t i = 0; i < m->out_at.size(); i++) {
		TORCH_CHECK(size_t(m->out_at[i]) < results.size(), "output '", m->out_names[i], "' is number ", m->out_at[i],
		            ", the model made ", results.size());
		give_tensor(&c->out[i], results[size_t(m->out_at[i])]);
	}
}

void run(tt_torch_call *c) {
	tt_torch_model *m = c->model;
	// The tensors over the caller's memory are made before inference mode begins, so that PyTorch tells them from its own.
	std::vector<IValue> given(m->in_at.size());
	for (size_t i = 0; i < given.size(); i++) {
		const tt_torch_value &v = c->in[i];
		if (!v.use) continue;
		if (v.type == TT_TORCH_STRINGS) {
			given[i] = input_strings(v);
			continue;
		}
		at::Tensor t = input_tensor(v);
		if (!m->on_cpu()) t = t.to(at::Device(m->device));
		else if (m->writes) t = t.clone();
		given[i] = std::move(t);
	}
	c10::InferenceMode inference(m->inference);
	at::NoGradGuard no_grad;
	if (m->package) {
		run_package(m, c, given);
	} else {
		torch::jit::GraphOptimizerEnabledGuard optimised(!m->plain && torch::jit::getGraphExecutorOptimize());
		Stack stack = arguments(m, c->in, given);
		m->forward->getSchema().checkAndNormalizeInputs(stack);
		m->forward->run(stack);
		TORCH_CHECK(stack.size() == 1, "forward left ", stack.size(), " values");
		if (m->out_how == TT_TORCH_KEYS) give_by_key(m, c, stack[0]);
		else give_in_order(m, c, stack[0]);
	}
	if (m->clean && !m->on_cpu()) at::accelerator::emptyCache();
}

}  // namespace

const char *tt_torch_source(void) { return "tutti-shim-source:" TT_SOURCE; }

const char *tt_torch_version(void) { return TORCH_VERSION; }

int tt_torch_threads(void) { return at::get_num_threads(); }

int tt_torch_setup(const tt_torch_process *p, char *why) {
	return !guarded(why, [&] {
		if (p->intra_threads > 0) at::set_num_threads(p->intra_threads);
		// It can be set once, before anything ran in parallel.
		if (p->inter_threads > 0 && at::get_num_interop_threads() != p->inter_threads)
			at::set_num_interop_threads(p->inter_threads);
		if (p->fuser >= 0) torch::jit::setTensorExprFuserEnabled(p->fuser != 0);
		if (p->executor >= 0) torch::jit::getExecutorMode() = p->executor != 0;
		if (p->profiling >= 0) torch::jit::getProfilingMode() = p->profiling != 0;
	});
}

tt_torch_model *tt_torch_load(const tt_torch_options *o, char *why) {
	auto m = std::make_unique<tt_torch_model>();
	bool ok = guarded(why, [&] {
		m->device = o->device;
		m->inference = o->inference, m->plain = o->plain, m->clean = o->clean;
		at::Device device(m->device);
		if (o->aoti) {
			m->package = std::make_shared<torch::inductor::AOTIModelPackageLoader>(
			    o->path, "model", false, size_t(std::max(1, o->runners)), device.is_cpu() ? -1 : device.index());
			return;
		}
		m->module = std::make_unique<torch::jit::Module>(torch::jit::load(o->path, device));
		m->module->eval();
		read_schema(m.get());
	});
	return ok ? m.release() : nullptr;
}

tt_torch_model *tt_torch_clone(tt_torch_model *m, char *why) {
	auto n = std::make_unique<tt_torch_model>();
	bool ok = guarded(why, [&] {
		n->device = m->device;
		n->inference = m->inference, n->plain = m->plain, n->clean = m->clean;
		n->package = m->package;
		if (m->module) {
			n->module = std::make_unique<torch::jit::Module>(m->module->deepcopy());
			read_schema(n.get());
		}
		n->in_how = m->in_how, n->out_how = m->out_how;
		n->in_at = m->in_at, n->out_at = m->out_at, n->from = m->from;
		n->in_names = m->in_names, n->out_names = m->out_names;
	});
	return ok ? n.release() : nullptr;
}

void tt_torch_unload(tt_torch_model *m) {
	char why[TT_TORCH_TEXT];
	guarded(why, [&] { delete m; });
}

char *tt_torch_describe(tt_torch_model *m, char *why) {
	char *text = nullptr;
	guarded(why, [&] {
		std::ostringstream out;
		for (const auto &p : m->parameters) {
			out << "in\t" << p.name << '\t' << kind_names[int(p.kind)] << '\t' << p.count << '\t' << p.may_lack << '\t'
			    << p.type << '\n';
		}
		if (m->result) {
			int64_t count;
			Kind kind = kind_of(m->result, &count);
			out << "out\t\t" << kind_names[int(kind)] << '\t' << leaves_of(m->result) << "\t0\t" << m->result->repr_str()
			    << '\n';
		}
		text = strdup(out.str().c_str());
		TORCH_CHECK(text != nullptr, "no memory");
	});
	return text;
}

int tt_torch_bind(tt_torch_model *m, int in_how, size_t ins, const int64_t *in_at, const char *const *in_names,
                  int out_how, size_t outs, const int64_t *out_at, const char *const *out_names, char *why) {
	return !guarded(why, [&] {
		m->in_how = in_how, m->out_how = out_how;
		m->in_at.assign(in_at, in_at + ins);
		m->out_at.assign(out_at, out_at + outs);
		m->in_names.assign(in_names, in_names + ins);
		m->out_names.assign(out_names, out_names + outs);
		int64_t leaves = 0;
		for (int64_t at : m->in_at) leaves = std::max(leaves, at + 1);
		m->from.assign(size_t(leaves), -1);
		for (size_t i = 0; i < ins; i++) m->from[size_t(m->in_at[i])] = int64_t(i);
	});
}

int tt_torch_run(tt_torch_call *c) {
	size_t outs = c->model->out_names.size();
	for (size_t i = 0; i < outs; i++) c->out[i].handle = nullptr;
	bool ok = guarded(c->why, [&] { run(c); });
	if (!ok) drop(c, outs);
	return !ok;
}

void tt_torch_strings(const tt_torch_value *v, void *to) {
	const auto &list = *static_cast<Kept *>(v->handle)->strings;
	char *p = static_cast<char *>(to);
	for (size_t i = 0; i < list.size(); i++) {
		const std::string &s = list.get(i);
		uint32_t n = uint32_t(s.size());
		std::memcpy(p, &n, 4);
		std::memcpy(p + 4, s.data(), s.size());
		p += 4 + s.size();
	}
}

void tt_torch_free(void *handle) {
	char why[TT_TORCH_TEXT];
	guarded(why, [&] { delete static_cast<Kept *>(handle); });
}
