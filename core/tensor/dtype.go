package tensor

// DType is the type of a tensor's elements. The numbers are those of DataType in
// config.pbtxt, so that one conversion serves both.
type DType uint8

// The element types of the KServe v2 protocol.
const (
	Invalid DType = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes
	BF16
	numDTypes
)

var dtypes = [numDTypes]struct {
	wire, config string
	size         int
}{
	Invalid: {"<invalid>", "TYPE_INVALID", 0},
	Bool:    {"BOOL", "TYPE_BOOL", 1},
	Uint8:   {"UINT8", "TYPE_UINT8", 1},
	Uint16:  {"UINT16", "TYPE_UINT16", 2},
	Uint32:  {"UINT32", "TYPE_UINT32", 4},
	Uint64:  {"UINT64", "TYPE_UINT64", 8},
	Int8:    {"INT8", "TYPE_INT8", 1},
	Int16:   {"INT16", "TYPE_INT16", 2},
	Int32:   {"INT32", "TYPE_INT32", 4},
	Int64:   {"INT64", "TYPE_INT64", 8},
	FP16:    {"FP16", "TYPE_FP16", 2},
	FP32:    {"FP32", "TYPE_FP32", 4},
	FP64:    {"FP64", "TYPE_FP64", 8},
	Bytes:   {"BYTES", "TYPE_STRING", 0},
	BF16:    {"BF16", "TYPE_BF16", 2},
}

// ParseDType returns the type the wire calls name ("FP32", "BYTES"), or Invalid.
func ParseDType(name string) DType {
	for d := Bool; d < numDTypes; d++ {
		if dtypes[d].wire == name {
			return d
		}
	}
	return Invalid
}

// String returns the wire's name of d ("FP32", "BYTES").
func (d DType) String() string {
	if d < numDTypes {
		return dtypes[d].wire
	}
	return dtypes[Invalid].wire
}

// ConfigName returns the name of d in config.pbtxt ("TYPE_FP32", "TYPE_STRING").
func (d DType) ConfigName() string {
	if d < numDTypes {
		return dtypes[d].config
	}
	return dtypes[Invalid].config
}

// Size returns the bytes of one element, 0 for Bytes and Invalid.
func (d DType) Size() int {
	if d < numDTypes {
		return dtypes[d].size
	}
	return 0
}
