package tensortest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// SeedsVariable is the environment variable with the number of seeds of random checks, 8 by default.
const SeedsVariable = "TUTTI_TEST_SEEDS"

// Seeds returns the number of seeds of random checks: n, or what the environment variable SeedsVariable says.
func Seeds(tb testing.TB, n int) uint64 {
	tb.Helper()
	text := os.Getenv(SeedsVariable)
	if text == "" {
		return uint64(n)
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		tb.Fatalf("%s: %v", SeedsVariable, err)
	}
	return v
}

// runRandom does the same random work on streams of devices and on the host, and compares.
func runRandom(t *testing.T, m Machine) {
	t.Helper()
	for seed := range Seeds(t, 8) {
		t.Run("random/"+strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			p := &program{kit: open(t, m, min(m.Devices, 2)), r: rand.New(rand.NewPCG(seed, 1))}
			for i := range p.devices {
				p.streams = append(p.streams, p.stream(i), p.stream(i))
			}
			for range 400 {
				p.step()
			}
			for _, v := range p.values {
				v.b.Release()
			}
		})
	}
}

// program is random work. Its values all have one size.
type program struct {
	*kit
	r       *rand.Rand
	streams []tensor.Stream
	values  []*value
}

// value is a buffer of a device, what it should hold, and the event of its last use.
type value struct {
	b    *tensor.Buffer
	want []byte
	last tensor.Event
}

const valueSize = 256

func (p *program) step() {
	p.Helper()
	s := p.streams[p.r.IntN(len(p.streams))]
	switch k := p.r.IntN(8); {
	case k == 0 || len(p.values) < 2:
		p.fill(s)
	case k == 1:
		p.upload(s)
	case k == 2:
		i := p.r.IntN(len(p.values))
		p.values[i].b.Release()
		p.values = append(p.values[:i], p.values[i+1:]...)
	case k == 3:
		p.read(s, p.pick())
	default:
		if from, to := p.pick(), p.pick(); from != to {
			p.copy(s, from, to)
		}
	}
}

func (p *program) pick() *value { return p.values[p.r.IntN(len(p.values))] }

// side returns a stream at the place of the buffer or s, if that has a side there.
func (p *program) side(s tensor.Stream, places ...tensor.Place) tensor.Stream {
	for _, at := range places {
		if s.Place() == at {
			return s
		}
	}
	for _, o := range p.streams {
		if o.Place() == places[0] {
			return o
		}
	}
	return nil
}

func (p *program) add(s tensor.Stream, b *tensor.Buffer, want []byte) {
	b.SetReady(s.Record())
	p.values = append(p.values, &value{b, want, b.Ready()})
}

func (p *program) fill(s tensor.Stream) {
	p.Helper()
	b := p.alloc(s, valueSize)
	elem := []byte{byte(p.r.Uint32()), byte(p.r.Uint32())}
	p.must(s.Fill(b, 0, valueSize, elem))
	p.add(s, b, bytes.Repeat(elem, valueSize/2))
}

func (p *program) upload(s tensor.Stream) {
	p.Helper()
	content := pattern(valueSize, p.r.IntN(256))
	p.add(s, p.up(s, content), content)
}

func (p *program) read(s tensor.Stream, v *value) {
	p.Helper()
	s = p.side(s, v.b.Place())
	p.must(v.last.WaitOn(s))
	to := p.alloc(p.host, valueSize)
	defer to.Release()
	p.must(s.Copy(to, 0, v.b, 0, valueSize))
	v.last = s.Record()
	p.must(v.last.Wait())
	if !bytes.Equal(to.Bytes(), v.want) {
		p.Fatalf("a buffer has\n%x, want\n%x", to.Bytes(), v.want)
	}
}

func (p *program) copy(s tensor.Stream, from, to *value) {
	p.Helper()
	s = p.side(s, from.b.Place(), to.b.Place())
	p.must(from.last.WaitOn(s))
	p.must(to.last.WaitOn(s))
	at, off, n := p.r.IntN(valueSize/2), p.r.IntN(valueSize/2), 1+p.r.IntN(valueSize/2)
	p.must(s.Copy(to.b, at, from.b, off, n))
	copy(to.want[at:at+n], from.want[off:off+n])
	from.last = s.Record()
	to.last = from.last
	if p.r.IntN(4) == 0 {
		to.last.Done() // the host looks now and then
	}
}
