// libtutti_torch-HASH.so: see shim.h. No exception leaves a function of it. Its soname is libtorch.so: compiled packages ask
// for the library of that name, which has nothing of its own and stands for those that this one links.
#include "values.h"

#include <ATen/Parallel.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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

struct tt_torch_model {
	at::Device place{at::kCPU};  // of the tensors of forward
	bool inference = false, plain = false, clean = false;
	bool writes = false;  // forward may write into its inputs
	bool state = false;   // forward may change the model
	std::unique_ptr<torch::jit::Module> module;
	torch::jit::Function *forward = nullptr;
	std::shared_ptr<torch::inductor::AOTIModelPackageLoader> package;
	std::vector<Parameter> parameters;
	c10::TypePtr result;

	int in_how = TT_TORCH_ORDER, out_how = TT_TORCH_ORDER;
	std::vector<int64_t> in_at, out_at, from;  // from: the input of each leaf, -1 for none
	std::vector<std::string> in_names, out_names;
};

namespace {

// Reports whether a graph sets an attribute, or writes into the tensor of one.
bool changes_state(const torch::jit::Block &block, const torch::jit::AliasDb &aliases) {
	for (const torch::jit::Node *n : block.nodes()) {
		if (n->kind() == c10::prim::SetAttr) return true;
		if (n->kind() == c10::prim::GetAttr && aliases.hasWriters(n->output())) return true;
		for (const torch::jit::Block *inner : n->blocks())
			if (changes_state(*inner, aliases)) return true;
	}
	return false;
}

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
	m->state = changes_state(*graph->block(), aliases);
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

at::Device outputs_at(const tt_torch_model *m, const tt_torch_call *c) {
	return c->stream != nullptr ? m->place : at::Device(at::kCPU);
}

// Finds the outputs by position.
void give_in_order(const tt_torch_model *m, tt_torch_call *c, const IValue &result) {
	at::Device to = outputs_at(m, c);
	if (m->out_at.size() == 1 && m->out_at[0] == 0 && result.isTensor()) return give(&c->out[0], result, to);
	std::vector<IValue> leaves;
	flatten(result, &leaves);
	for (size_t i = 0; i < m->out_at.size(); i++) {
		TORCH_CHECK(size_t(m->out_at[i]) < leaves.size(), "output '", m->out_names[i], "' is number ", m->out_at[i],
		            ", the model made ", leaves.size());
		give(&c->out[i], leaves[size_t(m->out_at[i])], to);
	}
}

void give_by_key(const tt_torch_model *m, tt_torch_call *c, const IValue &result) {
	TORCH_CHECK(result.isGenericDict(), "expected a dictionary, the model made ", result.type()->repr_str());
	auto dict = result.toGenericDict();
	for (size_t i = 0; i < m->out_names.size(); i++) {
		auto found = dict.find(IValue(m->out_names[i]));
		TORCH_CHECK(found != dict.end(), "the model's dictionary has no key '", m->out_names[i], "'");
		give(&c->out[i], found->value(), outputs_at(m, c));
	}
}

void run_package(tt_torch_model *m, tt_torch_call *c, const std::vector<IValue> &given) {
	std::vector<at::Tensor> tensors;
	tensors.reserve(m->from.size());
	for (int64_t from : m->from) {
		TORCH_CHECK(from >= 0 && c->in[from].use, "argument ", tensors.size(), " of the package is not given");
		tensors.push_back(given[size_t(from)].toTensor());
	}
	auto results = m->package->run(tensors, c->stream);
	for (size_t i = 0; i < m->out_at.size(); i++) {
		TORCH_CHECK(size_t(m->out_at[i]) < results.size(), "output '", m->out_names[i], "' is number ", m->out_at[i],
		            ", the model made ", results.size());
		give_tensor(&c->out[i], results[size_t(m->out_at[i])], outputs_at(m, c));
	}
}

// A stream of the driver as PyTorch's: the number of a stream that PyTorch did not make is its address, as in
// c10::cuda::getStreamFromExternal.
c10::Stream stream_of(at::Device device, void *stream) {
	return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<intptr_t>(stream));
}

// Waits for all work of a device, so that streams of the caller may use what it made.
void finish(at::Device device) {
	if (device.is_cpu()) return;
	c10::impl::VirtualGuardImpl guard(device.type());
	guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

// The inputs of a run. Without a stream they are on the host, and copied to the device of the model.
std::vector<IValue> inputs(const tt_torch_call *c, at::Device place) {
	const tt_torch_model *m = c->model;
	std::vector<IValue> given(m->in_at.size());
	for (size_t i = 0; i < given.size(); i++) {
		const tt_torch_value &v = c->in[i];
		if (!v.use) continue;
		if (v.type == TT_TORCH_STRINGS) {
			given[i] = input_strings(v);
			continue;
		}
		at::Device at = c->stream != nullptr ? place : at::Device(at::kCPU);
		at::Tensor t = input_tensor(v, at);
		if (at != place) t = t.to(place);
		else if (m->writes) t = t.clone();
		given[i] = std::move(t);
	}
	return given;
}

void run(tt_torch_call *c) {
	tt_torch_model *m = c->model;
	at::Device place = m->place;
	std::optional<c10::StreamGuard> on_stream;
	if (c->stream != nullptr) on_stream.emplace(stream_of(place, c->stream));
	// The tensors over the caller's memory are made before inference mode begins, so that PyTorch tells them from its own.
	std::vector<IValue> given = inputs(c, place);
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
	if (m->clean && !place.is_cpu()) at::getDeviceAllocator(place.type())->emptyCache();
}

// Refuses a package that was compiled for another kind of device. One that places itself goes where it was compiled for.
void place_package(tt_torch_model *m, const std::string &path, bool itself) {
	auto metadata = torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(path, "model");
	auto compiled = metadata.find("AOTI_DEVICE_KEY");
	if (compiled == metadata.end()) return;
	if (itself) m->place = at::Device(compiled->second);
	std::string want = c10::DeviceTypeName(m->place.type(), true);
	TORCH_CHECK(compiled->second == want, "the package was compiled for ", compiled->second, ", expected one for ", want,
	            ": compile it on that device, or change the kind of the instance group");
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
		if (p->no_cudnn >= 0) at::globalContext().setUserEnabledCuDNN(p->no_cudnn == 0);
	});
}

int tt_torch_memory(const char *settings, char *why) {
	return !guarded(why, [&] {
		std::string all = c10::CachingAllocator::getAllocatorSettings();
		if (!all.empty()) all += ',';
		c10::CachingAllocator::setAllocatorSettings(all + settings);
	});
}

int tt_torch_devices(const char *device) {
	char why[TT_TORCH_TEXT];
	int n = 0;
	guarded(why, [&] {
		auto type = at::Device(device).type();
		if (c10::impl::hasDeviceGuardImpl(type)) n = c10::impl::VirtualGuardImpl(type).deviceCount();
	});
	return n;
}

void tt_torch_empty(const char *device) {
	char why[TT_TORCH_TEXT];
	guarded(why, [&] { at::getDeviceAllocator(at::Device(device).type())->emptyCache(); });
}

tt_torch_model *tt_torch_load(const tt_torch_options *o, char *why) {
	auto m = std::make_unique<tt_torch_model>();
	bool ok = guarded(why, [&] {
		bool itself = o->device[0] == 0;
		if (!itself) m->place = at::Device(o->device);
		m->inference = o->inference, m->plain = o->plain, m->clean = o->clean;
		if (o->aoti) {
			place_package(m.get(), o->path, itself);
			m->package = std::make_shared<torch::inductor::AOTIModelPackageLoader>(
			    o->path, "model", false, size_t(std::max(1, o->runners)), m->place.is_cpu() ? -1 : m->place.index());
			return;
		}
		c10::OptionalDeviceGuard on_device;
		if (!m->place.is_cpu()) on_device.reset_device(m->place);
		std::optional<at::Device> map;
		if (!itself) map = m->place;
		m->module = std::make_unique<torch::jit::Module>(torch::jit::load(o->path, map));
		finish(m->place);
		m->module->eval();
		read_schema(m.get());
	});
	return ok ? m.release() : nullptr;
}

tt_torch_model *tt_torch_clone(tt_torch_model *m, char *why) {
	auto n = std::make_unique<tt_torch_model>();
	bool ok = guarded(why, [&] {
		n->place = m->place;
		n->inference = m->inference, n->plain = m->plain, n->clean = m->clean;
		n->package = m->package;
		if (m->module) {
			n->module = std::make_unique<torch::jit::Module>(m->module->deepcopy());
			finish(m->place);
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
		if (m->state) out << "state\n";
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

int tt_torch_attach(tt_torch_call *c, void *stream, char *why) {
	return !guarded(why, [&] {
		at::Device device = c->model->place;
		void *known = c10::impl::VirtualGuardImpl(device.type()).getStreamNativeHandle(stream_of(device, stream));
		TORCH_CHECK(known == stream, "this version of PyTorch does not accept streams of others");
		c->stream = stream;
	});
}

int tt_torch_run(tt_torch_call *c) {
	size_t outs = c->model->out_names.size();
	for (size_t i = 0; i < outs; i++) c->out[i].handle = nullptr;
	int result = attempt(c->why, [&] { run(c); });
	if (result != TT_TORCH_OK) drop(c, outs);
	return result;
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
