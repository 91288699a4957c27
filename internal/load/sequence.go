package load

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/inference"
)

// Sequences make the requests of each client those of sequences, one sequence after another. With n clients n sequences are under way
// at a time. They need gRPC.
type Sequences struct {
	// Length is the number of requests of a sequence; 0 for requests without sequences.
	Length int
	// Text makes ids texts, for models whose correlation ids are.
	Text bool
}

// errOnlyGRPC is the error of sequences over another protocol.
var errOnlyGRPC = errors.New("sequences are sent over gRPC only")

// sequenceIDs returns a counter for the ids of sequences. It begins at random, so that two programs at one server have different ids,
// and fits into every type of a correlation id.
func sequenceIDs() *atomic.Int64 {
	ids := &atomic.Int64{}
	ids.Store(rand.Int64N(1 << 30)) //nolint:gosec // ids need not be secret
	return ids
}

// sequencer numbers the requests of one client.
type sequencer struct {
	Sequences

	ids  *atomic.Int64 // the id of the last sequence of all clients
	id   int64
	sent int // requests of the sequence that were sent; 0 between sequences
}

// add adds the parameters of the next request to those of a message. last ends the sequence with it.
func (s *sequencer) add(to map[string]*inference.InferParameter, last bool) {
	if s.Length <= 0 {
		return
	}
	if s.sent == 0 {
		s.id = s.ids.Add(1)
		to["sequence_start"] = flag(true)
	}
	to["sequence_id"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: s.id}}
	if s.Text {
		to["sequence_id"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: strconv.FormatInt(s.id, 10)}}
	}
	if s.sent++; last || s.sent >= s.Length {
		to["sequence_end"] = flag(true)
		s.sent = 0
	}
}

// fail gives up a sequence: the model may have lost its state, so that further requests would fail too.
func (s *sequencer) fail() { s.sent = 0 }

func flag(b bool) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: b}}
}

// extend appends the parameters of the next request to a message with its prefix, and returns the longer message in buf.
func (s *sequencer) extend(buf, message []byte, last bool) ([]byte, error) {
	m := &inference.ModelInferRequest{Parameters: map[string]*inference.InferParameter{}}
	s.add(m.Parameters, last)
	buf, err := proto.MarshalOptions{}.MarshalAppend(append(buf[:0], message...), m) // fields of a message may follow it
	if err == nil {
		binary.BigEndian.PutUint32(buf[1:], uint32(len(buf)-grpcPrefix)) //nolint:gosec // protobuf's messages are smaller
	}
	return buf, err
}

// Finish ends the sequence of a client that is under way with one more request. It returns nil if there is none. No other request of
// the client may be under way.
func Finish(c Client) error {
	if f, ok := c.(interface{ finish() error }); ok {
		return f.finish()
	}
	return nil
}
