// Package compute lists the functions that native steps and batches use at a device. Package cuda/kernels implements them
// for GPUs. A device without them is one where native steps do not run, and where batches are joined by copies.
//
// Every function puts work into a stream and returns. It holds no references on buffers: the caller calls UsedUntil on
// what it read, and SetReady on what it wrote, with the stream's next event. Tensors must be at the stream's device.
package compute

import "github.com/tutti-server/tutti/core/tensor"

// Kernels are the functions at one device. They are safe for concurrent use by different streams.
type Kernels interface {
	// Join joins rows of several tensors to one, padded or cut to one length.
	Join(s tensor.Stream, j *Join) error
	// Cast converts numbers and BOOL between any two types, as the operation cast of the step tensor does. With saturate an integer
	// that does not fit becomes the nearest, else it wraps around. Floating-point numbers always saturate.
	Cast(s tensor.Stream, dst, src *tensor.Tensor, saturate bool) error
	// Spread copies elements of any type of fixed size between nests of loops.
	Spread(s tensor.Stream, dst, src *tensor.Tensor, n *Nest) error
	// Score converts FP32 scores [..., n] of every row of n to FP32.
	Score(s tensor.Stream, dst, src *tensor.Tensor, f Function, divisor float32) error
	// TopK ranks FP32 scores.
	TopK(s tensor.Stream, t *TopK) error
	// ArgMax writes the first of the largest scores of each row of FP32 [..., n] to value FP32 and its number to index INT64.
	ArgMax(s tensor.Stream, index, value, src *tensor.Tensor) error
	// MeanPool writes the mean of FP32 or FP16 [rows, tokens, width] over the tokens with a mask INT64 [rows, tokens] other than 0 to FP32
	// [rows, width], with unit divided by its length.
	MeanPool(s tensor.Stream, dst, src, mask *tensor.Tensor, unit bool) error
	// Unit divides rows of FP32 or FP16 [..., n] by their length, at least 1e-12, into FP32.
	Unit(s tensor.Stream, dst, src *tensor.Tensor) error
	// Space converts the channels and the colour space of UINT8 pixels [..., from] to [..., ch], where ch is 1 or 3.
	Space(s tensor.Stream, dst, src *tensor.Tensor, ycc bool) error
	// Resize resamples images with a filter of Pillow, to the last bit.
	Resize(s tensor.Stream, r *Resize) error
	// Place crops or pads images, normalises their samples and orders them as pixels or planes.
	Place(s tensor.Stream, p *Place) error
}

// Of returns the kernels of a device, which it loads on the first call. nil when the device has none.
func Of(a tensor.Accelerator) (Kernels, error) {
	if c, ok := a.(interface{ Kernels() (Kernels, error) }); ok {
		return c.Kernels()
	}
	return nil, nil
}

// Can reports whether a device has kernels. It does not start the device.
func Can(a tensor.Accelerator) bool {
	c, ok := a.(interface{ HasKernels() bool })
	return ok && c.HasKernels()
}

// Join joins Parts to rows of To bytes from byte Off of Dst on. Rows of a part that are shorter are followed by Elem,
// nil for zero bytes; longer ones are cut. For example, with To 8 the rows [1 2] and [3] of FP32 become [1 2 0 0 3 0 0 0] in halves.
type Join struct {
	Dst   *tensor.Buffer
	Off   int
	To    int
	Elem  []byte
	Parts []Part
}

// Part is a tensor of Rows rows of Len bytes each from byte Off of Buf on.
type Part struct {
	Buf       *tensor.Buffer
	Off       int
	Rows, Len int
}

// MaxLoops is the most loops of a Nest.
const MaxLoops = 8

// Nest is a nest of loops, the outermost first. Size and strides are in elements; From and To are the first elements.
type Nest struct {
	Rank        int
	Size        [MaxLoops]int
	Read, Write [MaxLoops]int // strides of the source and of the target
	From, To    int
}

// Function converts scores.
type Function int

// The functions of scores.
const (
	Softmax Function = iota
	LogSoftmax
	Sigmoid
	Raw
)

// TopK ranks rows of FP32 scores Src [..., n] by descending score, then by number, NaN last, and writes the first K of each row to
// Values FP32 and Indices INT32. Values are converted by Function; a softmax is over all scores of the row.
type TopK struct {
	Src, Values, Indices *tensor.Tensor
	// Counts, when not nil, is INT32 [rows]: values below Threshold and NaN become 0 with index -1, and Counts has the number of the others.
	Counts    *tensor.Tensor
	K         int
	Function  Function
	Threshold float32
}

// Filter is a filter of Pillow, with the numbers of package resize.
type Filter int

// The filters with kernels.
const (
	Nearest  Filter = 0
	Area     Filter = 1
	Bilinear Filter = 2
	Bicubic  Filter = 4
)

// Axis is one axis of a resize: In samples become Out, of which N from From on are computed.
type Axis struct {
	In, Out, From, N int
	// Size is the most inputs of an output, Scale the inputs per output, Support the reach of the filter in inputs, Inverse the factor on
	// distances.
	Size                    int
	Scale, Support, Inverse float64
	// Low and High are the first and last input that is read, High excluded.
	Low, High int
}

// Resize resamples the part at (Left, Top) of Images images of Height x Width pixels of Channels samples of 8 bits in Src to X.N x Y.N
// pixels in Dst. Alloc allocates scratch memory.
type Resize struct {
	Src, Dst              *tensor.Buffer
	SrcOff, DstOff        int
	Images, Height, Width int
	Channels              int
	Left, Top             int
	Filter                Filter
	X, Y                  Axis
	ColumnsFirst          bool // the pass down the columns is the first
	Alloc                 tensor.Allocator
}

// Place puts Images images of SrcH x SrcW pixels of Channels samples at (X, Y) of outputs of Height x Width. Output channel c has the samples
// of channel Order[c], mapped by 256 words of Table, which are the bits of elements of Size bytes; where there is no image the sample is Blank[c].
type Place struct {
	Src, Dst       *tensor.Buffer
	SrcOff, DstOff int
	Table          *tensor.Buffer
	Images         int
	SrcW, SrcH     int
	X, Y           int
	Width, Height  int
	Channels       int
	Order          [3]int
	Blank          [3]byte
	Planes         bool // channels first
	Size           int
}
