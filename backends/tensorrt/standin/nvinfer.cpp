// A library with the binary interface of TensorRT's runtime, for tests without a GPU. Its tables of virtual functions are
// those that the compiler makes of the classes below, whose functions stand where TensorRT's do: SKIP is one that the server
// does not call. MAJOR is 10 or 11, MINOR the minor version.
//
// A plan is a text:
//
//	TUTTI-PLAN 10.3
//	input x FP32 -1,4            name, type, shape; then "shape" for a shape tensor, "format CHW32", "alias NAME"
//	range x 0 1,4 2,4 8,4        smallest, best and largest shape in profile 0
//	values s 0 1,2 2,2 8,8       the same of the values of a shape tensor
//	output y FP32 -1,4
//	op affine y x 2 1            y = 2 x + 1
//	op add z x y | op copy y x | op resize y x s (y has the shape that s holds) | op nonzero i x | op values t s 3 (t = s + 3 but
//	the first value)
//	memory 4096                  bytes that an execution needs
//	exclusive                    one context per profile
//	hostcode                     needs setEngineHostCodeAllowed
//	end
//
// Operations are kernels of the CUDA driver that TUTTI_CUDA_DRIVER or TUTTI_TEST_CUDA_DRIVER names, on the given stream.
// standin_report returns the mistakes of its caller, a line each.
#include <dlfcn.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int32_t VERSION = MAJOR * 10000 + MINOR * 100;

std::mutex mu;
std::string faults;
int fault_count;

void fault(const char *format, ...) {
	char text[300];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	std::lock_guard<std::mutex> lock(mu);
	faults += std::string(text) + "\n";
	fault_count++;
}

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define SKIP_(n) virtual void CAT(skipped_, n)() { fault("a function was called that this library does not have: line %d", __LINE__); }
#define SKIP SKIP_(__COUNTER__)
#define SKIP2 SKIP SKIP
#define SKIP3 SKIP2 SKIP
#define SKIP4 SKIP2 SKIP2
#define SKIP5 SKIP4 SKIP

struct Dims {
	int32_t n;
	int64_t d[8];
};

struct Info {
	const char *kind;
	int32_t major, minor;
};

class Versioned {
public:
	virtual int32_t getAPILanguage() const { return 0; }
	virtual Info getInterfaceInfo() const = 0;
	virtual ~Versioned() = default;
};

#if MAJOR == 10
class Logger {
public:
	virtual void log(int32_t severity, const char *text) = 0;
	virtual ~Logger() = default;
};
#else
class Logger : public Versioned {
public:
	virtual void log(int32_t severity, const char *text) = 0;
};
#endif

class OutputAllocator : public Versioned {
public:
	virtual void *reallocateOutput(const char *name, void *present, uint64_t n, uint64_t alignment) = 0;
	virtual void *reallocateOutputAsync(const char *name, void *present, uint64_t n, uint64_t alignment, void *stream) = 0;
	virtual void notifyShape(const char *name, const Dims &dims) = 0;
};

// The CUDA driver.
struct Driver {
	int (*function)(void **f, void *module, const char *name);
	int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra);
	int (*copy)(uint64_t to, uint64_t from, size_t n, void *stream);
	int (*sync)(void *stream);
	int (*range)(uint64_t *base, size_t *n, uint64_t p);
	void *self;

	Driver() {
		const char *path = getenv("TUTTI_CUDA_DRIVER");
		if (path == nullptr) path = getenv("TUTTI_TEST_CUDA_DRIVER");
		void *lib = dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW);
		if (lib == nullptr) {
			fault("no CUDA driver: %s", dlerror());
			abort();
		}
		*(void **)&function = dlsym(lib, "cuModuleGetFunction");
		*(void **)&launch = dlsym(lib, "cuLaunchKernel");
		*(void **)&copy = dlsym(lib, "cuMemcpyAsync");
		*(void **)&sync = dlsym(lib, "cuStreamSynchronize");
		*(void **)&range = dlsym(lib, "cuMemGetAddressRange_v2");
		Dl_info here;
		dladdr((void *)&fault_count, &here);
		self = dlopen(here.dli_fname, RTLD_NOW);
	}
};

Driver &driver() {
	static Driver d;
	return d;
}

void run(const char *name, void *stream, int64_t n, std::vector<void *> params) {
	if (n == 0) return;
	void *f = nullptr;
	int r = driver().function(&f, driver().self, name);
	if (r == 0) r = driver().launch(f, unsigned((n + 255) / 256), 1, 1, 256, 1, 1, 0, stream, params.data(), nullptr);
	if (r != 0) fault("launch of %s: %d", name, r);
}

const std::map<std::string, std::pair<int, int>> types = { // number, size
	{"FP32", {0, 4}}, {"FP16", {1, 2}}, {"INT8", {2, 1}}, {"INT32", {3, 4}}, {"BOOL", {4, 1}}, {"UINT8", {5, 1}},
	{"FP8", {6, 1}}, {"BF16", {7, 2}}, {"INT64", {8, 8}}, {"INT4", {9, 1}},
};

std::vector<int64_t> list(const std::string &text) {
	std::vector<int64_t> out;
	std::stringstream in(text);
	for (std::string one; std::getline(in, one, ',');) out.push_back(atoll(one.c_str()));
	return out;
}

Dims dims_of(const std::vector<int64_t> &v) {
	Dims d{};
	d.n = int32_t(v.size());
	std::copy(v.begin(), v.end(), d.d);
	return d;
}

int64_t elements(const Dims &d) {
	int64_t n = 1;
	for (int i = 0; i < d.n; i++) n *= d.d[i];
	return n;
}

struct Tensor {
	std::string name, format = "LINEAR", alias;
	bool output = false, shape = false, dynamic = false;
	int type = 0, size = 0;
	Dims dims{};
	std::map<int, std::vector<Dims>> ranges;
	std::map<int, std::vector<std::vector<int64_t>>> values;
	std::map<int, std::vector<std::vector<int32_t>>> narrow;
};

struct Operation {
	std::string kind, out;
	std::vector<std::string> in;
	std::vector<double> numbers;
};

struct Plan {
	std::vector<Tensor> tensors;
	std::vector<Operation> operations;
	int profiles = 1;
	int64_t memory = 0;
	bool exclusive = false, hostcode = false, ended = false;
	std::set<int> taken;
	Logger *log = nullptr;

	Tensor *find(const std::string &name) {
		for (auto &t : tensors)
			if (t.name == name) return &t;
		return nullptr;
	}

	std::string read(const std::string &text) {
		std::stringstream in(text);
		std::string line, word;
		std::getline(in, line);
		if (line.rfind("TUTTI-PLAN ", 0) != 0) return "Serialization assertion magicTagRead == kMAGIC_TAG failed.";
		std::string want = std::to_string(MAJOR) + "." + std::to_string(MINOR);
		if (line.substr(11) != want)
			return "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: " + want +
			       ", Serialized Engine Version: " + line.substr(11);
		while (std::getline(in, line)) {
			std::stringstream s(line);
			s >> word;
			if (word == "input" || word == "output") {
				Tensor t;
				std::string type, shape;
				s >> t.name >> type >> shape;
				t.output = word == "output";
				t.type = types.at(type).first, t.size = types.at(type).second;
				t.dims = dims_of(shape == "scalar" ? std::vector<int64_t>{} : list(shape));
				while (s >> word) {
					if (word == "shape") t.shape = true;
					if (word == "format") s >> t.format;
					if (word == "alias") s >> t.alias;
				}
				tensors.push_back(t);
			} else if (word == "range" || word == "values") {
				std::string name, one;
				int profile;
				s >> name >> profile;
				profiles = std::max(profiles, profile + 1);
				for (int i = 0; i < 3; i++) {
					s >> one;
					auto v = list(one);
					if (word == "range") find(name)->ranges[profile].push_back(dims_of(v));
					else find(name)->values[profile].push_back(v), find(name)->narrow[profile].emplace_back(v.begin(), v.end());
				}
			} else if (word == "op") {
				Operation o;
				s >> o.kind >> o.out;
				while (s >> word) {
					if (find(word) != nullptr) o.in.push_back(word);
					else o.numbers.push_back(atof(word.c_str()));
				}
				if (o.kind == "nonzero") find(o.out)->dynamic = true;
				operations.push_back(o);
			} else if (word == "memory") s >> memory;
			else if (word == "exclusive") exclusive = true;
			else if (word == "hostcode") hostcode = true;
			else if (word == "end") ended = true;
		}
		return ended ? "" : "Serialization assertion sizeRead == sizeExpected failed: the plan is truncated";
	}
};

// An object of the interface: its table has the destructors, behind it is the implementation.
template <class T> struct Object {
	virtual ~Object() { delete implementation; }
	T *implementation;
	explicit Object(T *t) : implementation(t) {}
};

struct Context {
	Plan *plan;
	int profile = -1;
	std::map<std::string, Dims> shapes;
	std::map<std::string, void *> addresses;
	std::map<std::string, OutputAllocator *> allocators;
	void *memory = nullptr;
	int64_t bytes = 0;

	explicit Context(Plan *p) : plan(p) {}
	virtual ~Context() { plan->taken.erase(profile); }

	bool error(const std::string &text) {
		plan->log->log(1, text.c_str());
		return false;
	}

	const int64_t *value(const std::string &name, int64_t *narrow) {
		Tensor *t = plan->find(name);
		void *p = addresses[name];
		if (t->type == 8) return (const int64_t *)p;
		for (int i = 0; i < elements(t->dims); i++) narrow[i] = ((int32_t *)p)[i];
		return narrow;
	}

	Dims shape_of(const std::string &name) {
		Tensor *t = plan->find(name);
		if (t == nullptr) return Dims{-1, {}};
		if (!t->output) return shapes.count(name) ? shapes[name] : t->dims;
		if (t->dynamic) return t->dims;
		for (auto &o : plan->operations) {
			if (o.out != name) continue;
			if (o.kind == "resize") {
				int64_t narrow[8];
				const int64_t *v = value(o.in[1], narrow);
				Dims d = t->dims;
				std::copy(v, v + d.n, d.d);
				return d;
			}
			if (t->shape) return t->dims;
			Dims d = shape_of(o.in[0]);
			if (t->dims.n == d.n) return d;
		}
		return t->dims;
	}

	bool allows(const Tensor &t, const Dims &d) {
		auto it = t.ranges.find(std::max(profile, 0));
		const Dims &low = it == t.ranges.end() ? t.dims : it->second[0], &high = it == t.ranges.end() ? t.dims : it->second[2];
		if (d.n != low.n) return false;
		for (int i = 0; i < d.n; i++)
			if (d.d[i] < low.d[i] || d.d[i] > high.d[i]) return false;
		return true;
	}

	uint64_t device(const std::string &name) {
		uint64_t p = uint64_t(addresses[name]);
		Tensor *t = plan->find(name);
		int64_t need = elements(shape_of(name)) * t->size;
		if (p % 256 != 0) fault("%s is at %llx, which is not aligned to 256 bytes", name.c_str(), (unsigned long long)p);
		uint64_t base = 0;
		size_t n = 0;
		if (!t->dynamic && (driver().range(&base, &n, p) != 0 || p + uint64_t(need) > base + n))
			fault("%s of %lld bytes is not in memory of the device", name.c_str(), (long long)need);
		return p;
	}

	bool nonzero(const Operation &o, void *stream) {
		int64_t n = elements(shape_of(o.in[0]));
		std::vector<float> x(size_t(n), 0);
		if (n > 0 && driver().copy(uint64_t(x.data()), device(o.in[0]), size_t(n) * 4, stream) != 0) return error("copy failed");
		driver().sync(stream);
		std::vector<int64_t> found;
		for (int64_t i = 0; i < n; i++)
			if (x[size_t(i)] != 0) found.push_back(i);
		auto a = allocators.find(o.out);
		if (a == allocators.end()) return error("Neither address or allocator is set for output tensor " + o.out);
		if (strcmp(a->second->getInterfaceInfo().kind, "IOutputAllocator") != 0) fault("the allocator is no IOutputAllocator");
		void *p = a->second->reallocateOutputAsync(o.out.c_str(), nullptr, std::max<size_t>(found.size() * 8, 1), 256, stream);
		if (p == nullptr) return error("Output allocator returned no memory for " + o.out);
		a->second->notifyShape(o.out.c_str(), dims_of({int64_t(found.size())}));
		if (!found.empty() && driver().copy(uint64_t(p), uint64_t(found.data()), found.size() * 8, stream) != 0) return error("copy failed");
		driver().sync(stream);
		return true;
	}

	bool execute(const Operation &o, void *stream) {
		if (o.kind == "nonzero") return nonzero(o, stream);
		if (o.kind == "values") {
			int64_t narrow[8], n = elements(plan->find(o.in[0])->dims);
			const int64_t *v = value(o.in[0], narrow);
			for (int64_t i = 0; i < n; i++) ((int64_t *)addresses[o.out])[i] = v[i] + (i > 0 ? int64_t(o.numbers[0]) : 0);
			return true;
		}
		uint64_t y = device(o.out), x = device(o.in[0]);
		int64_t n = elements(shape_of(o.out));
		if (o.kind == "affine") {
			float a = float(o.numbers[0]), b = float(o.numbers[1]);
			run("standin_affine", stream, n, {&x, &y, &n, &a, &b});
		} else if (o.kind == "add") {
			uint64_t other = device(o.in[1]);
			run("standin_add", stream, n, {&x, &other, &y, &n});
		} else {
			int64_t bytes = n * plan->find(o.out)->size, m = elements(shape_of(o.in[0])) * plan->find(o.in[0])->size;
			run("standin_repeat", stream, bytes, {&x, &y, &bytes, &m});
		}
		return true;
	}

	// The interface.
#if MAJOR == 10
	SKIP5 SKIP5 SKIP5
#else
	SKIP5 SKIP5 SKIP4
#endif
	virtual bool setOptimizationProfileAsync(int32_t p, void *stream) {
		if (stream == nullptr) fault("setOptimizationProfileAsync without a stream");
		return select(p);
	}
	SKIP3
	virtual bool setInputShape(const char *name, const Dims &d) {
		Tensor *t = plan->find(name);
		if (t == nullptr || t->output) return error(std::string("no input ") + name);
		if (!allows(*t, d)) return error(std::string("Static dimension mismatch or out of profile bounds for ") + name);
		shapes[name] = d;
		return true;
	}
	virtual Dims getTensorShape(const char *name) const { return const_cast<Context *>(this)->shape_of(name); }
	SKIP
	virtual bool setTensorAddress(const char *name, void *p) {
		if (plan->find(name) == nullptr) return error(std::string("no tensor ") + name);
		addresses[name] = p;
		return true;
	}
	SKIP3
	virtual int32_t inferShapes(int32_t, const char **) {
		for (auto &t : plan->tensors) {
			if (t.output || !t.shape) continue;
			if (addresses[t.name] == nullptr) return 1;
			int64_t narrow[8];
			const int64_t *v = value(t.name, narrow);
			auto it = t.values.find(profile);
			for (int64_t i = 0; it != t.values.end() && i < elements(t.dims); i++)
				if (v[i] < it->second[0][size_t(i)] || v[i] > it->second[2][size_t(i)]) return error("values of shape tensor " + t.name + " are out of the profile"), -1;
		}
		return 0;
	}
	SKIP3
	virtual bool setOutputAllocator(const char *name, OutputAllocator *a) {
		allocators[name] = a;
		return true;
	}
	SKIP4
	virtual bool enqueueV3(void *stream) {
		if (stream == nullptr) fault("enqueueV3 on the default stream");
		for (auto &t : plan->tensors) {
			if (!t.output && !t.shape && !allows(t, shape_of(t.name))) return error("input " + t.name + " has no shape");
			if (!t.dynamic && addresses[t.name] == nullptr) return error("Address is not set for tensor " + t.name);
		}
		if (bytes < plan->memory * (profile + 1)) return error("device memory of " + std::to_string(bytes) + " bytes is too small");
		int64_t n = plan->memory * (profile + 1);
		uint64_t p = uint64_t(memory);
		if (n > 0) run("standin_scribble", stream, n, {&p, &n});
		for (auto &o : plan->operations)
			if (!execute(o, stream)) return false;
		return true;
	}
	SKIP5 SKIP5 SKIP
	virtual void setDeviceMemoryV2(void *p, int64_t n) { memory = p, bytes = n; }

	bool select(int32_t p) {
		if (p < 0 || p >= plan->profiles) return error("Optimization profile " + std::to_string(p) + " is out of range");
		if (p == profile) return true;
		if (plan->exclusive && plan->taken.count(p)) return error("Profile " + std::to_string(p) + " has been chosen by another IExecutionContext");
		plan->taken.erase(profile);
		plan->taken.insert(p);
		profile = p;
		return true;
	}
};

struct Engine : Plan {
	virtual ~Engine() = default;

	static Dims bound(const Tensor &t, int32_t profile, int32_t select) {
		auto it = t.ranges.find(profile);
		return it == t.ranges.end() ? t.dims : it->second[size_t(select)];
	}

	SKIP3
	virtual void *createExecutionContext(int32_t strategy) {
		if (strategy != 2) fault("expected a context whose memory the server gives, found strategy %d", strategy);
		auto *c = new Context(this);
		if (taken.count(0) == 0 || !exclusive) c->select(0); // without profile 0, one must be set before use
		return new Object<Context>(c);
	}
#if MAJOR == 10
	SKIP4
#else
	SKIP2
#endif
	virtual int32_t getNbOptimizationProfiles() const { return profiles; }
#if MAJOR == 10
	virtual const int32_t *getProfileTensorValues(const char *name, int32_t profile, int32_t select) {
		Tensor *t = find(name);
		return t->narrow.count(profile) ? t->narrow[profile][size_t(select)].data() : nullptr;
	}
	SKIP3
	virtual bool hasImplicitBatchDimension() const { return false; }
	SKIP3
#else
	SKIP5 SKIP
#endif
	virtual Dims getTensorShape(const char *name) { return find(name)->dims; }
	virtual int32_t getTensorDataType(const char *name) { return find(name)->type; }
	virtual int32_t getTensorLocation(const char *name) { return find(name)->shape; }
	virtual bool isShapeInferenceIO(const char *name) { return find(name)->shape; }
	virtual int32_t getTensorIOMode(const char *name) { return find(name)->output ? 2 : 1; }
	SKIP5
	virtual Dims getProfileShape(const char *name, int32_t profile, int32_t select) { return bound(*find(name), profile, select); }
	virtual int32_t getNbIOTensors() const { return int32_t(tensors.size()); }
	virtual const char *getIOTensorName(int32_t i) const { return tensors[size_t(i)].name.c_str(); }
	SKIP4
	virtual int32_t getTensorFormatV2(const char *name, int32_t) { return find(name)->format == "LINEAR" ? 0 : 5; }
	virtual const char *getTensorFormatDescV2(const char *name, int32_t) { return find(name)->format.c_str(); }
#if MAJOR == 10
	SKIP5 SKIP5 SKIP5
#else
	SKIP5 SKIP5 SKIP
#endif
	virtual int64_t getDeviceMemorySizeForProfileV2(int32_t profile) const { return memory * (profile + 1); }
#if MAJOR == 11
	virtual const int64_t *getProfileTensorValuesV2(const char *name, int32_t profile, int32_t select) {
		Tensor *t = find(name);
		return t->values.count(profile) ? t->values[profile][size_t(select)].data() : nullptr;
	}
	SKIP3
	virtual const char *getAliasedInputTensor(const char *name) {
		Tensor *t = find(name);
		return t->alias.empty() ? nullptr : t->alias.c_str();
	}
#endif
};

struct Runtime {
	Logger *log;
	bool host_code = false;

	explicit Runtime(Logger *l) : log(l) {}
	virtual ~Runtime() = default;
	SKIP
	virtual void *deserializeCudaEngine(const void *plan, size_t n) {
		auto e = new Engine;
		e->log = log;
		std::string why = e->read(std::string((const char *)plan, n));
		if (why.empty() && e->hostcode && !host_code) why = "Cannot deserialize engine: host code is not allowed";
		if (why.empty()) {
			log->log(2, "Using an engine plan file across different models of devices is not recommended");
			log->log(3, "Loaded engine");
			return new Object<Engine>(e);
		}
		delete e;
		log->log(1, ("IRuntime::deserializeCudaEngine: Error Code 1: Serialization (" + why + ")").c_str());
		return nullptr;
	}
#if MAJOR == 10
	SKIP5 SKIP5 SKIP5 SKIP2
#else
	SKIP5 SKIP5 SKIP5 SKIP
#endif
	virtual void setEngineHostCodeAllowed(bool on) { host_code = on; }
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int32_t getInferLibVersion() { return VERSION; }

__attribute__((visibility("default"))) void *createInferRuntime_INTERNAL(void *logger, int32_t version) {
	auto *l = static_cast<Logger *>(logger);
	if (version != VERSION) fault("createInferRuntime_INTERNAL with version %d", version);
#if MAJOR == 11
	if (strcmp(l->getInterfaceInfo().kind, "ILogger") != 0) fault("the logger is no ILogger");
#endif
	if (getenv("TUTTI_STANDIN_NO_DEVICE") != nullptr) { // as TensorRT does
		l->log(1, "CUDA initialization failure with error: 35. Please check your CUDA installation");
		return (void *)0x238;
	}
	return new Object<Runtime>(new Runtime(l));
}

// Writes the mistakes to text and returns their number.
__attribute__((visibility("default"))) int standin_report(char *text, size_t n) {
	std::lock_guard<std::mutex> lock(mu);
	snprintf(text, n, "%s", faults.c_str());
	return fault_count;
}
}
