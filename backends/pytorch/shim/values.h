// Values between C and PyTorch: kinds of parameters, inputs over the caller's memory, outputs that the caller frees.
#ifndef TUTTI_TORCH_VALUES_H
#define TUTTI_TORCH_VALUES_H

#include "shim.h"

#include <torch/script.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
template <class F> int attempt(char *why, F &&f) {
	try {
		f();
		return TT_TORCH_OK;
	} catch (const c10::OutOfMemoryError &e) {
		say(why, e.what_without_backtrace());
		return TT_TORCH_NO_MEMORY;
	} catch (const c10::Error &e) {
		say(why, e.what_without_backtrace());
	} catch (const std::exception &e) {
		say(why, e.what());
	} catch (...) {
		say(why, "an exception of an unknown kind");
	}
	return TT_TORCH_FAILED;
}

template <class F> bool guarded(char *why, F &&f) { return attempt(why, f) == TT_TORCH_OK; }

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

// A tensor over the caller's memory at a device.
at::Tensor input_tensor(const tt_torch_value &v, at::Device at) {
	// An empty tensor may have no memory, but an address is wanted.
	static char none[64];
	void *data = v.data != nullptr ? v.data : none;
	at::IntArrayRef dims(v.dims, size_t(v.rank));
	// PyTorch would ask the driver for a device that is not given.
	return at::for_blob(data, dims).options(at::TensorOptions(c10::ScalarType(v.type)).device(at)).target_device(at).make_tensor();
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

void give_tensor(tt_torch_value *v, at::Tensor t, at::Device to) {
	TORCH_CHECK(t.defined(), "an output is an undefined tensor");
	TORCH_CHECK(t.layout() == at::kStrided && !t.is_quantized() && !t.is_nested(), "an output is not a dense tensor");
	TORCH_CHECK(t.dim() <= TT_TORCH_RANK, "an output has ", t.dim(), " dimensions, at most ", TT_TORCH_RANK, " are possible");
	if (t.device() != to) t = t.to(to);
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

void give(tt_torch_value *v, const IValue &leaf, at::Device to) {
	if (leaf.isTensor()) return give_tensor(v, leaf.toTensor(), to);
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

#endif
