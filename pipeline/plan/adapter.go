package plan

import (
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Adapter changes a tensor into what its reader expects: first the layout, then the type; dims of 1 in front only change the shape. It never
// loses a value.
type Adapter struct {
	// From and To are the data types.
	From, To tensor.DType
	// Layout is the change of an image's layout.
	Layout Layout
	// Drop removes a leading dimension of 1, after the batch dimension where there is one; Add adds one.
	Drop, Add bool
}

// Layout is a change of an image's layout, in its last three dimensions.
type Layout uint8

// The changes of layout.
const (
	SameLayout Layout = iota
	ToNCHW            // height, width, channels become channels, height, width
	ToNHWC            // channels, height, width become height, width, channels
)

// lossless lists the types to which every value of a type converts exactly.
var lossless = map[tensor.DType][]tensor.DType{
	tensor.Int8:   {tensor.Int16, tensor.Int32, tensor.Int64, tensor.FP32, tensor.FP64},
	tensor.Int16:  {tensor.Int32, tensor.Int64, tensor.FP32, tensor.FP64},
	tensor.Int32:  {tensor.Int64, tensor.FP64},
	tensor.Uint8:  {tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.Int16, tensor.Int32, tensor.Int64, tensor.FP32, tensor.FP64},
	tensor.Uint16: {tensor.Uint32, tensor.Uint64, tensor.Int32, tensor.Int64, tensor.FP32, tensor.FP64},
	tensor.Uint32: {tensor.Uint64, tensor.Int64, tensor.FP64},
	tensor.FP16:   {tensor.FP32, tensor.FP64},
	tensor.BF16:   {tensor.FP32, tensor.FP64},
	tensor.FP32:   {tensor.FP64},
}

// String describes the adapter, for example "NHWC to NCHW, UINT8 to FP32".
func (a *Adapter) String() string {
	var list []string
	if a.Drop {
		list = append(list, "without the leading dimension of 1")
	}
	switch a.Layout {
	case ToNCHW:
		list = append(list, "NHWC to NCHW")
	case ToNHWC:
		list = append(list, "NCHW to NHWC")
	case SameLayout:
	}
	if a.Add {
		list = append(list, "with a leading dimension of 1")
	}
	if a.From != a.To {
		list = append(list, a.From.String()+" to "+a.To.String())
	}
	return strings.Join(list, ", ")
}

// side is what one end of a tensor declares.
type side struct {
	dtype  tensor.DType
	dims   tensor.Shape // without the batch dimension
	batch  int          // max_batch_size
	format modelconfig.ModelInput_Format
}

func sideOf(maxBatch int, p *config.Port, formats map[string]modelconfig.ModelInput_Format) side {
	return side{dtype: p.DType, dims: p.Dims, batch: maxBatch, format: formats[p.Name]}
}

// full returns the dims with the batch dimension.
func (s *side) full() tensor.Shape {
	p := config.Port{Dims: s.dims}
	return p.FullDims(s.batch)
}

// adapterOf returns the adapter between what writes a tensor and what reads it, nil when they agree. ok is false when none fits.
func adapterOf(from, to side) (a *Adapter, ok bool) {
	a = &Adapter{From: from.dtype, To: to.dtype}
	if from.dtype != to.dtype && !slices.Contains(lossless[from.dtype], to.dtype) {
		return nil, false
	}
	if !a.reshape(from, to) {
		return nil, false
	}
	if *a == (Adapter{From: to.dtype, To: to.dtype}) {
		return nil, true
	}
	return a, true
}

// reshape sets the layout and the leading dimension. It returns false when no change of them fits, or more than one does.
func (a *Adapter) reshape(from, to side) bool {
	f, t := from.dims, to.dims
	if formats := from.format != 0 && to.format != 0 && from.format != to.format; !formats {
		_, same := config.Narrow(f, t)
		_, sameFull := config.Narrow(from.full(), to.full())
		if same || sameFull {
			return true
		}
	}
	if from.batch > 0 == (to.batch > 0) {
		switch {
		case f.Rank() == t.Rank()+1 && f.Dim(0) == 1:
			a.Drop, f = true, f.Tail()
		case t.Rank() == f.Rank()+1 && t.Dim(0) == 1:
			a.Add, t = true, t.Tail()
		}
		if _, same := config.Narrow(f, t); same && (a.Drop || a.Add) {
			return true
		}
	}
	if f.Rank() != 3 || t.Rank() != 3 || from.dtype == tensor.Bytes {
		return false
	}
	a.Layout = layoutOf(f, t, from.format, to.format)
	return a.Layout != SameLayout
}

// layoutOf returns the only change of layout that fits; SameLayout when none does, or when both do.
func layoutOf(from, to tensor.Shape, was, is modelconfig.ModelInput_Format) Layout {
	const nchw, nhwc = modelconfig.ModelInput_FORMAT_NCHW, modelconfig.ModelInput_FORMAT_NHWC
	fits := func(l Layout) bool {
		turned, channels := tensor.Of(from.Dim(2), from.Dim(0), from.Dim(1)), from.Dim(2)
		wants := to.Dim(0)
		if l == ToNHWC {
			turned, channels, wants = tensor.Of(from.Dim(1), from.Dim(2), from.Dim(0)), from.Dim(0), to.Dim(2)
		}
		if _, ok := config.Narrow(turned, to); !ok {
			return false
		}
		// Without a format, only a number of channels that is usual for images tells the layout.
		return was != 0 || is != 0 || channels == wants && slices.Contains([]int64{1, 3, 4}, channels)
	}
	toNCHW := was != nchw && is != nhwc && fits(ToNCHW)
	toNHWC := was != nhwc && is != nchw && fits(ToNHWC)
	switch {
	case toNCHW == toNHWC:
		return SameLayout
	case toNCHW:
		return ToNCHW
	default:
		return ToNHWC
	}
}
