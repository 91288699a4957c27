package image

import (
	"context"
	"encoding/binary"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

var _ steps.DeviceStep = (*step)(nil)

// HostOnly implements steps.DeviceStep.
func (s *step) HostOnly() string {
	name := resize.FilterNames[s.filter]
	switch {
	case s.boxes > 0:
		return "the host reads the boxes"
	case s.geometry:
		return "the host computes the output geometry"
	case s.gap > 0:
		return "reducing_gap has no kernel"
	case s.filter != resize.Nearest && s.filter != resize.Area && s.filter != resize.Bilinear && s.filter != resize.Bicubic:
		return "filter '" + name + "' has no kernel: nearest, area, bilinear and bicubic have one"
	}
	return ""
}

// AtDevice implements steps.DeviceStep.
func (s *step) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	return &atDevice{step: s, device: d}, nil
}

// atDevice is a step at a device. Files are decoded on the host, and the pixels that the resize reads are uploaded once. Everything else is
// done at the device: 8-bit samples have the bits that they have on the host.
type atDevice struct {
	*step
	device *steps.Device
	w      worker
	table  *tensor.Buffer // the layout's table at the device, once it was needed
	resize compute.Resize
	place  compute.Place
	line   []byte
}

// Close releases the table.
func (a *atDevice) Close() error {
	if a.table != nil {
		steps.Release(a.device.Stream, a.table)
		a.table = nil
	}
	return nil
}

// Run processes the batch.
func (a *atDevice) Run(ctx context.Context, b *backends.Batch) error {
	defer a.w.forget()
	k, err := a.device.Load()
	if err != nil {
		return err
	}
	out, err := b.Alloc(0, a.layout.dtype, a.full(a.shape(), b.Rows))
	if err != nil {
		return err
	}
	if err := a.upTable(b); err != nil {
		return err
	}
	if a.files {
		return a.runFiles(ctx, b, k, out)
	}
	return a.runPixels(b, k, out)
}

// upTable copies the layout's table to the device, on the first call.
func (a *atDevice) upTable(b *backends.Batch) error {
	if a.table != nil {
		return nil
	}
	const words = 3 * 256
	host, err := a.device.Pinned.Alloc(4 * words)
	if err != nil {
		return err
	}
	defer host.Release()
	for i := range words {
		binary.LittleEndian.PutUint32(host.Bytes()[4*i:], a.layout.lut[i/256][i%256])
	}
	t, err := a.device.Stream.Alloc(4 * words)
	if err != nil {
		return err
	}
	if err := a.device.Stream.Copy(t, 0, host, 0, 4*words); err != nil {
		t.Release()
		return err
	}
	a.table = t
	a.copied(b, "normalisation table", host)
	return nil
}

// copied counts a copy of host memory to the device.
func (a *atDevice) copied(b *backends.Batch, name string, host *tensor.Buffer) {
	if b.Copied != nil {
		b.Copied(name, host.Place(), a.device.Stream.Place(), host.Len())
	}
}

// runPixels processes images of one size, which are at the device.
func (a *atDevice) runPixels(b *backends.Batch, k compute.Kernels, out *tensor.Tensor) error {
	in, at := &b.In[0], b.In[0].Shape.Rank()-3
	p := raster.Packed{H: int(in.Shape.Dim(at)), W: int(in.Shape.Dim(at + 1)), Channels: int(in.Shape.Dim(at + 2))}
	err := checkPixels(&p, a.decoding.MaxPixels)
	if err == nil {
		err = a.step.place(&a.w, p.W, p.H)
	}
	if err != nil {
		for row := range b.Rows {
			b.Fail(row, steps.InputError(b, inputName, row, err))
		}
		return b.Stream.Fill(out.Buf, out.Off, out.Len, nil)
	}
	src := *in
	if ycc := a.space == raster.YCbCr; p.Channels != a.layout.ch || ycc {
		shape := in.Shape
		shape.SetDim(at+2, int64(a.layout.ch))
		if src, err = tensor.New(b.Stream, tensor.Uint8, shape); err != nil {
			return err
		}
		defer func() { steps.Release(b.Stream, src.Buf) }()
		if err := k.Space(b.Stream, &src, in, ycc); err != nil {
			return err
		}
	}
	r, f := &a.resize, &a.w.frame
	*r = compute.Resize{Src: src.Buf, SrcOff: src.Off, Images: b.Rows, Height: p.H, Width: p.W, Left: f.part.X, Top: f.part.Y}
	return a.finish(b, k, out, 0)
}

// runFiles decodes files one after another, while the device resizes those before.
func (a *atDevice) runFiles(ctx context.Context, b *backends.Batch, k compute.Kernels, out *tensor.Tensor) error {
	rest, size := b.In[0].Bytes(), a.layout.bytes()
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, after, ok := tensor.NextBytes(rest)
		if rest = after; !ok {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d files, found %d", inputName, b.Rows, row)
		}
		up, err := a.upload(ctx, b, row, data)
		if err == nil {
			a.resize.Src, a.resize.Images = up, 1
			err = a.finish(b, k, out, row*size)
			steps.Release(b.Stream, up)
			if err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := b.Stream.Fill(out.Buf, out.Off+row*size, size, nil); err != nil { // its memory may hold samples of an earlier request
			return err
		}
		b.Fail(row, err)
	}
	return nil
}

// upload decodes a file and copies the pixels that the resize reads to the device. It sets the source of a.resize.
func (a *atDevice) upload(ctx context.Context, b *backends.Batch, row int, data []byte) (*tensor.Buffer, error) {
	w := &a.w
	defer a.done(w)
	if err := a.load(ctx, w, data); err != nil {
		return nil, steps.InputError(b, inputName, row, err)
	}
	src, f := &w.resizer.Src, &w.frame
	if w.size.W != src.W || w.size.H != src.H { // a JPEG decoded at a fraction of its size
		f.part = resize.Rect{W: src.W, H: src.H}
	}
	sx, sy := a.spans(f)
	x, y, ch := resize.Measure(a.filter, a.sharp, sx), resize.Measure(a.filter, a.sharp, sy), src.Channels()
	width, height := x.High-x.Low, y.High-y.Low
	host, err := a.device.Pinned.Alloc(width * height * ch)
	if err != nil {
		return nil, err
	}
	defer host.Release()
	a.line = raster.Sized(a.line, src.W*ch)
	for i := range height {
		line := src.Peek(a.line, f.part.Y+y.Low+i)
		copy(host.Bytes()[i*width*ch:], line[(f.part.X+x.Low)*ch:][:width*ch])
	}
	up, err := b.Stream.Alloc(host.Len())
	if err != nil {
		return nil, err
	}
	if err := b.Stream.Copy(up, 0, host, 0, host.Len()); err != nil {
		up.Release()
		return nil, err
	}
	a.copied(b, inputName, host)
	a.resize = compute.Resize{Height: height, Width: width, Left: -x.Low, Top: -y.Low}
	return up, nil
}

// finish resizes the source of a.resize by the frame, and normalises it into out from byte off on.
func (a *atDevice) finish(b *backends.Batch, k compute.Kernels, out *tensor.Tensor, off int) error {
	r, f, l := &a.resize, &a.w.frame, &a.layout
	sx, sy := a.spans(f)
	mid, err := b.Stream.Alloc(r.Images * sx.N * sy.N * l.ch)
	if err != nil {
		return err
	}
	defer func() { steps.Release(b.Stream, mid) }()
	r.Dst, r.Channels, r.Filter, r.Alloc = mid, l.ch, compute.Filter(a.filter), b.Stream
	r.X, r.Y, r.ColumnsFirst = a.axis(sx), a.axis(sy), resize.ColumnsFirst(sx, sy)
	if err := k.Resize(b.Stream, r); err != nil {
		return err
	}
	a.place = compute.Place{
		Src: mid, Dst: out.Buf, DstOff: out.Off + off, Table: a.table, Images: r.Images, SrcW: sx.N, SrcH: sy.N, X: max(f.x, 0), Y: max(f.y, 0),
		Width: a.width, Height: a.height, Channels: l.ch, Order: l.order, Blank: l.blank, Planes: l.planes, Size: l.size(),
	}
	return k.Place(b.Stream, &a.place)
}

// axis returns one axis for the kernels.
func (a *atDevice) axis(s resize.Span) compute.Axis {
	n := resize.Measure(a.filter, a.sharp, s)
	return compute.Axis{
		In: s.In, Out: s.Out, From: s.From, N: s.N, Size: n.Size, Scale: n.Scale, Support: n.Support, Inverse: n.Inverse, Low: n.Low, High: n.High,
	}
}
