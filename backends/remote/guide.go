package remote

const guideDoc = "A model that another server executes: another Tutti, Triton, OpenVINO Model Server or any server of KServe v2 over gRPC. " +
	"Inputs, outputs, `max_batch_size` and the transaction policy that the configuration leaves out are taken from the far model when this one is loaded; a configuration that contradicts them is an error that names both sides. " +
	"If the endpoint is away then, a model with a complete configuration loads without it, and any other fails. " +
	"Such a model, one whose connections are all lost, and one whose far model has changed after a redeploy are not ready, with the reason; requests fail with UNAVAILABLE until a server is back, and the model is ready again by itself when the far models agree with what was loaded. " +
	"A request carries its id, sequence, priority, its remaining timeout, its parameters, its deadline, its trace context, its cancellation, and whether it is in the background. Errors keep their code. " +
	"`dynamic_batching` batches in front of the network; requests with different parameters, and those of sequences, are sent one by one. " +
	"`instance_group` limits how many are in flight, by default to 64. Balancing, retries, outlier detection, health checks and keepalive are those of grpc-go."

const guideLimits = "Requests are sent to the gRPC port; there is no HTTP client. Ragged inputs, `batch_input` and `batch_output` are refused. Shared memory is not used. " +
	"`xds:///` and `outlier_detection` need grpc-go's xDS. `tutti` has it unless it was built with the tag `noxds`, which makes the program 20 MB smaller; a server as a library imports `google.golang.org/grpc/xds`. " +
	"Of an `xds:///` target the control plane decides balancing, retries, outlier detection and health: the parameters for these are refused there, `balancing=sequence` adds the header `tutti-sequence` for the hash policy of a route, and `weighted_round_robin` asks for load reports. Its retry policy is followed only if `idempotent` is `true`. " +
	"The environment names the control plane before the server starts, as grpc-go says: `GRPC_XDS_BOOTSTRAP` is the path of a bootstrap file. When the control plane is away, what it said last holds. " +
	"Connections do not go through an HTTP proxy."
