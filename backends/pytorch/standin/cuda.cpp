// A libtorch_cuda.so for tests on machines without a GPU: it registers PyTorch's device CUDA on top of the checking driver,
// whose path is in TUTTI_TEST_CUDA_DRIVER. What PyTorch's own library gets from CUDA is the same here: device memory that the
// host cannot read, streams that run late, a caching allocator whose blocks belong to a stream. Operators compute on the host:
// kernels (kernels.cpp) of the driver read their inputs and write their outputs, so that the driver checks every access and its order.
// Copies that a model or the backend makes are copies of the driver, which counts them.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Copy.h>
#include <ATen/native/TensorIterator.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/library.h>

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;
constexpr int max_devices = 16, out_of_memory = 2, not_ready = 600;

// The functions of the driver that are used, by their exported names.
struct Driver {
	int (*cuInit)(unsigned);
	int (*cuDeviceGetCount)(int *);
	int (*cuGetErrorString)(int, const char **);
	int (*cuDevicePrimaryCtxRetain)(void **, int);
	int (*cuCtxSetCurrent)(void *);
	int (*cuCtxSynchronize)();
	int (*cuMemGetInfo_v2)(size_t *, size_t *);
	int (*cuMemAlloc_v2)(uint64_t *, size_t);
	int (*cuMemFree_v2)(uint64_t);
	int (*cuMemcpyAsync)(uint64_t, uint64_t, size_t, void *);
	int (*cuStreamCreateWithPriority)(void **, unsigned, int);
	int (*cuStreamSynchronize)(void *);
	int (*cuModuleLoadDataEx)(void **, const void *, unsigned, int *, void **);
	int (*cuModuleGetFunction)(void **, void *, const char *);
	int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

	int devices = 0;
	std::array<void *, max_devices> context{};
	void *read = nullptr, *write = nullptr, *copy = nullptr;  // the kernels below
};

void check(const Driver &d, int r) {
	if (r == 0) return;
	const char *text = "unknown error";
	d.cuGetErrorString(r, &text);
	TORCH_CHECK(false, "CUDA error: ", text);
}

std::string own_path() {
	Dl_info self;
	static char here;
	TORCH_CHECK(dladdr(&here, &self) != 0, "the library does not find itself");
	return self.dli_fname;
}

Driver *open_driver() {
	const char *path = std::getenv("TUTTI_TEST_CUDA_DRIVER");
	TORCH_CHECK(path != nullptr, "TUTTI_TEST_CUDA_DRIVER names no checking driver");
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	TORCH_CHECK(lib != nullptr, dlerror());
	auto *d = new Driver;
	auto find = [&](auto &f, const char *name) {
		f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(lib, name));
		TORCH_CHECK(f != nullptr, "the driver has no ", name);
	};
#define FIND(name) find(d->name, #name)
	FIND(cuInit), FIND(cuDeviceGetCount), FIND(cuGetErrorString), FIND(cuDevicePrimaryCtxRetain), FIND(cuCtxSetCurrent);
	FIND(cuCtxSynchronize), FIND(cuMemGetInfo_v2), FIND(cuMemAlloc_v2), FIND(cuMemFree_v2), FIND(cuMemcpyAsync);
	FIND(cuStreamCreateWithPriority), FIND(cuStreamSynchronize), FIND(cuModuleLoadDataEx), FIND(cuModuleGetFunction), FIND(cuLaunchKernel);
#undef FIND
	check(*d, d->cuInit(0));
	check(*d, d->cuDeviceGetCount(&d->devices));
	for (int i = 0; i < d->devices; i++) check(*d, d->cuDevicePrimaryCtxRetain(&d->context[i], i));
	check(*d, d->cuCtxSetCurrent(d->context[0]));
	void *module;
	check(*d, d->cuModuleLoadDataEx(&module, own_path().c_str(), 0, nullptr, nullptr));
	check(*d, d->cuModuleGetFunction(&d->read, module, "standin_read"));
	check(*d, d->cuModuleGetFunction(&d->write, module, "standin_write"));
	check(*d, d->cuModuleGetFunction(&d->copy, module, "standin_copy"));
	return d;
}

Driver &driver() {
	static Driver *d = open_driver();  // lives as long as the process
	return *d;
}

// The device and the streams of this thread, as CUDA's runtime has them. Stream 0 is the device's default stream.
thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<int64_t, max_devices> current_stream{};

void *default_stream(int device) {
	static std::mutex mu;
	static std::array<void *, max_devices> streams{};
	std::lock_guard<std::mutex> lock(mu);
	Driver &d = driver();
	check(d, d.cuCtxSetCurrent(d.context[device]));
	if (streams[device] == nullptr) check(d, d.cuStreamCreateWithPriority(&streams[device], 1, 0));
	return streams[device];
}

// Makes the device's context current, and returns the stream of this thread.
void *use(int device) {
	Driver &d = driver();
	TORCH_CHECK(device >= 0 && device < d.devices, "CUDA error: invalid device ordinal");
	int64_t id = current_stream[device];
	void *s = id == 0 ? default_stream(device) : reinterpret_cast<void *>(id);
	check(d, d.cuCtxSetCurrent(d.context[device]));
	return s;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
	c10::DeviceType type() const override { return CUDA; }
	c10::Device getDevice() const override { return {CUDA, current_device}; }
	void setDevice(c10::Device d) const override {
		TORCH_CHECK(d.index() < driver().devices, "CUDA error: invalid device ordinal");
		uncheckedSetDevice(d);
	}
	void uncheckedSetDevice(c10::Device d) const noexcept override {
		if (d.index() >= 0) current_device = d.index();
	}
	c10::Device exchangeDevice(c10::Device d) const override {
		c10::Device old = getDevice();
		setDevice(d);
		return old;
	}
	c10::Stream getStream(c10::Device d) const override { return stream(d, current_stream[size_t(d.index())]); }
	c10::Stream getDefaultStream(c10::Device d) const override { return stream(d, 0); }
	c10::Stream exchangeStream(c10::Stream s) const override {
		c10::Stream old = getStream(s.device());
		current_stream[size_t(s.device_index())] = s.id();
		return old;
	}
	void *getStreamNativeHandle(const c10::Stream s) const override {
		return s.id() == 0 ? default_stream(s.device_index()) : reinterpret_cast<void *>(s.id());
	}
	c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(driver().devices); }
	void synchronizeStream(const c10::Stream &s) const override { check(driver(), driver().cuStreamSynchronize(getStreamNativeHandle(s))); }
	void synchronizeDevice(c10::DeviceIndex i) const override {
		use(i);
		check(driver(), driver().cuCtxSynchronize());
	}
	static c10::Stream stream(c10::Device d, int64_t id) { return c10::Stream(c10::Stream::UNSAFE, d, id); }
};

struct Hooks : at::CUDAHooksInterface {
	explicit Hooks(at::CUDAHooksArgs) {}
	void init() const override {}
	bool isBuilt() const override { return true; }
	bool isAvailable() const override { return true; }
	bool hasCUDA() const override { return true; }
	bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
	c10::DeviceIndex deviceCount() const override { return c10::DeviceIndex(driver().devices); }
};

// The caching allocator: a block is of the stream that was current when it was allocated, and serves only that stream again.
struct Allocator final : c10::DeviceAllocator {
	struct Block {
		uint64_t p;
		size_t n;
		int device;
		void *stream;
		bool written = false;  // since it was allocated
	};
	std::mutex mu;
	std::map<std::tuple<int, void *, size_t>, std::vector<Block *>> cached;
	std::array<size_t, max_devices> reserved{};
	static inline double fraction = 1;
	double limit = 0;  // the fraction when the first memory was allocated

	bool initialized() override { return limit > 0; }
	c10::DataPtr allocate(size_t n) override {
		int device = current_device;
		void *stream = use(device);
		if (n == 0) return {nullptr, nullptr, &release, c10::Device(CUDA, c10::DeviceIndex(device))};
		n = (n + 511) / 512 * 512;
		std::lock_guard<std::mutex> lock(mu);
		if (limit == 0) limit = fraction;
		auto &list = cached[{device, stream, n}];
		Block *b;
		if (!list.empty()) {
			b = list.back();
			list.pop_back();
			b->written = false;
		} else {
			b = fresh(device, stream, n);
		}
		return {reinterpret_cast<void *>(b->p), b, &release, c10::Device(CUDA, c10::DeviceIndex(device))};
	}
	Block *fresh(int device, void *stream, size_t n) {
		Driver &d = driver();
		for (bool again : {true, false}) {
			size_t left = 0, total = 0;
			uint64_t p = 0;
			check(d, d.cuMemGetInfo_v2(&left, &total));
			int r = double(reserved[device] + n) > limit * double(total) ? out_of_memory : d.cuMemAlloc_v2(&p, n);
			if (r == 0) {
				reserved[device] += n;
				return new Block{p, n, device, stream};
			}
			if (r != out_of_memory) check(d, r);
			if (again) drop(device);
			else TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", n, " bytes. GPU ", device,
			                      " has ", left, " bytes free of ", total, ", ", reserved[device], " are PyTorch's");
		}
		return nullptr;
	}
	// Gives the unused memory of a device back. mu is held, and the device's context current.
	void drop(int device) {
		for (auto &[key, list] : cached) {
			if (std::get<0>(key) != device) continue;
			for (Block *b : list) {
				check(driver(), driver().cuMemFree_v2(b->p));
				reserved[device] -= b->n;
				delete b;
			}
			list.clear();
		}
	}
	void emptyCache(c10::MempoolId_t) override {
		std::lock_guard<std::mutex> lock(mu);
		for (int i = 0; i < driver().devices; i++) {
			use(i);
			drop(i);
		}
	}
	static void release(void *context);
	c10::DeleterFnPtr raw_deleter() const override { return &release; }
	void copy_data(void *, const void *, size_t) const override { TORCH_CHECK(false, "not used"); }
	void recordStream(const c10::DataPtr &, c10::Stream) override { TORCH_CHECK(false, "the stand-in has no record_stream"); }
	c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
	void resetAccumulatedStats(c10::DeviceIndex) override {}
	void resetPeakStats(c10::DeviceIndex) override {}
};

Allocator *allocator() {
	static auto *a = new Allocator;
	return a;
}

void Allocator::release(void *context) {
	auto *b = static_cast<Block *>(context);
	if (b == nullptr) return;
	std::lock_guard<std::mutex> lock(allocator()->mu);
	allocator()->cached[{b->device, b->stream, b->n}].push_back(b);
}

// Reads PYTORCH_ALLOC_CONF's key of the memory limit, as the caching allocator of CUDA does.
void configure(const std::string &text) {
	c10::CachingAllocator::ConfigTokenizer words(text);
	for (size_t i = 0; i + 2 < words.size(); i++)
		if (words[i] == "per_process_memory_fraction" && words[i + 1] == ":") Allocator::fraction = words.toDouble(i + 2);
}

// Set while an operator computes: what it reads and writes are accesses of its kernel, not copies.
thread_local bool computing = false;
struct Computing {
	bool before = computing;
	Computing() { computing = true; }
	~Computing() { computing = before; }
};

void launch_kernel(void *f, void *stream, uint64_t a, uint64_t b, uint64_t n) {
	void *params[] = {&a, &b, &n};
	check(driver(), driver().cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

uint64_t address(const void *p) { return reinterpret_cast<uint64_t>(p); }

// Returns the block of a tensor, or nullptr for memory that is not PyTorch's.
Allocator::Block *block_of(const at::Tensor &t) {
	const c10::DataPtr &p = t.storage().data_ptr();
	return p.get_deleter() == &Allocator::release ? static_cast<Allocator::Block *>(p.get_context()) : nullptr;
}

void will_write(const at::Tensor &t) {
	if (auto *b = block_of(t)) b->written = true;
}

// The bytes from a tensor's first to its last element.
size_t span(const at::Tensor &t) { return at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size()); }

// Returns a copy on the host, with the same strides.
at::Tensor fetch(const at::Tensor &t) {
	auto host = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU).pinned_memory(false));
	auto *b = block_of(t);
	bool skip = computing && b != nullptr && !b->written;  // an operator's output: cpu_fallback reads those too
	if (size_t n = span(t); n > 0 && !skip) {
		void *s = use(t.device().index());
		if (computing) launch_kernel(driver().read, s, address(t.data_ptr()), address(host.data_ptr()), n);
		else check(driver(), driver().cuMemcpyAsync(address(host.data_ptr()), address(t.data_ptr()), n, s));
		check(driver(), driver().cuStreamSynchronize(s));
	}
	return host;
}

// Writes a host tensor to a device tensor of the same strides. A kernel does it later; a copy is done on return.
void put(const at::Tensor &dst, const at::Tensor &host) {
	size_t n = span(dst);
	if (n == 0) return;
	void *s = use(dst.device().index());
	will_write(dst);
	if (computing) {
		void *data = std::memcpy(std::malloc(n), host.data_ptr(), n);
		return launch_kernel(driver().write, s, address(data), address(dst.data_ptr()), n);
	}
	check(driver(), driver().cuMemcpyAsync(address(dst.data_ptr()), address(host.data_ptr()), n, s));
	check(driver(), driver().cuStreamSynchronize(s));
}

void copy_tensor(at::Tensor dst, const at::Tensor &src) {
	bool within = dst.is_cuda() && src.is_cuda() && dst.device() == src.device();
	if (within && dst.dtype() == src.dtype() && dst.sizes() == src.sizes() && dst.is_contiguous() && src.is_contiguous()) {
		void *s = use(dst.device().index());
		if (span(dst) == 0) return;
		will_write(dst);
		if (computing) return launch_kernel(driver().copy, s, address(src.data_ptr()), address(dst.data_ptr()), span(dst));
		return check(driver(), driver().cuMemcpyAsync(address(dst.data_ptr()), address(src.data_ptr()), span(dst), s));
	}
	std::optional<Computing> kernel;
	if (within) kernel.emplace();  // a strided copy or a cast is a kernel
	at::Tensor host = src.is_cuda() ? fetch(src) : src;
	if (!dst.is_cuda()) {
		dst.copy_(host);
	} else if (dst.is_contiguous()) {
		put(dst, host.to(dst.scalar_type()).expand(dst.sizes()).contiguous());
	} else {
		at::Tensor whole = fetch(dst);
		whole.copy_(host);
		put(dst, whole);
	}
}

void copy_stub_cuda(at::TensorIterator &iter, bool) { copy_tensor(at::Tensor(iter.tensor(0)), at::Tensor(iter.tensor(1))); }

at::Tensor copy_from_and_resize(const at::Tensor &src, const at::Tensor &dst) {
	if (dst.sizes() != src.sizes()) {
		auto sized = at::empty(src.sizes(), dst.options());
		dst.unsafeGetTensorImpl()->set_storage_keep_dtype(sized.storage());
		dst.unsafeGetTensorImpl()->set_sizes_contiguous(src.sizes());
	}
	copy_tensor(dst, src);
	return dst;
}

c10::DispatchKeySet keys() { return c10::DispatchKeySet(c10::DispatchKey::CUDA); }

// Allocates on the device of an argument, which is the current one without an index.
struct OnDevice {
	c10::DeviceIndex before = current_device;
	explicit OnDevice(std::optional<c10::Device> d) {
		if (d && d->index() >= 0) current_device = d->index();
	}
	~OnDevice() { current_device = before; }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
	OnDevice on(device);
	return at::detail::empty_generic(size, allocator(), keys(), c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
	OnDevice on(device);
	return at::detail::empty_strided_generic(size, stride, allocator(), keys(), c10::dtype_or_default(type));
}

at::Tensor as_strided(const at::Tensor &t, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
	return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

at::Tensor view(const at::Tensor &t, at::IntArrayRef size) { return at::native::view(t, size); }

at::Tensor reshape_alias(const at::Tensor &t, at::IntArrayRef size, at::IntArrayRef stride) { return at::native::_reshape_alias(t, size, stride); }

at::Tensor &set_storage(at::Tensor &t, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
	auto *impl = t.unsafeGetTensorImpl();
	impl->set_storage_keep_dtype(std::move(storage));
	impl->set_storage_offset(offset);
	if (stride.data() != nullptr) impl->set_sizes_and_strides(size, stride);
	else impl->set_sizes_contiguous(size);
	return t;
}

void compute(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
	Computing kernel;
	at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
	m.impl("empty.memory_format", &empty);
	m.impl("empty_strided", &empty_strided);
	m.impl("as_strided", &as_strided);
	m.impl("view", &view);
	m.impl("_reshape_alias", &reshape_alias);
	m.impl("set_.source_Storage_storage_offset", &set_storage);
	m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

c10::CachingAllocator::DeviceConfigParserHookRegistry config_keys(&configure, {"per_process_memory_fraction"});

const bool registered = [] {
	c10::SetAllocator(CUDA, allocator());
	torch::jit::setTensorExprFuserEnabled(false);  // there is no compiler for CUDA here
	return true;
}();

}  // namespace

namespace at::native {
REGISTER_CUDA_DISPATCH(copy_stub, &copy_stub_cuda)
}

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, ::Hooks)
}
