package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	inferMethod = "/inference.GRPCInferenceService/ModelInfer"
	grpcPrefix  = 5 // the bytes before a message: a flag for compression, and the length
)

// caller is a gRPC client on a shared connection. The fields from id are those of its call: they are guarded by the
// connection's mu while the call is under way.
type caller struct {
	conn     *conn2
	messages [][]byte // with their prefixes
	done     chan error
	last     int    // the request that was sent last
	longer   []byte // its message with the parameters of a sequence
	sequencer

	id       uint32
	window   int64 // the bytes that the server accepts on the stream
	response []byte
	status   string // grpc-status and grpc-message, once they came
	text     string
	http     string // :status
	ending   bool   // the call ends when the headers that arrive are complete

	waiting *Task     // the coroutine that waits for the call's end, in a loop; guarded by the connection's mu
	stamp   time.Time // when the end of the response arrived, in a loop
}

var _ Client = (*caller)(nil)

// grpc opens n clients, Streams per connection.
func (g *Group) grpc(t *Target, requests []Request, n int) error {
	if t.GRPC == "" {
		return errors.New("no address of gRPC is known")
	}
	messages, err := encoded(requests, (*Request).Proto)
	if err != nil {
		return err
	}
	for i, m := range messages {
		messages[i] = append(binary.BigEndian.AppendUint32(make([]byte, 1, grpcPrefix+len(m)), uint32(len(m))), m...) //nolint:gosec // protobuf's messages are smaller
	}
	ids := sequenceIDs()
	var conn *conn2
	for i := range n {
		if i%Streams == 0 {
			conn = newConn2(t)
			g.close = append(g.close, conn.Close)
		}
		g.Clients = append(g.Clients, &caller{
			conn: conn, messages: messages, done: make(chan error, 1), sequencer: sequencer{Sequences: t.Sequences, ids: ids},
		})
	}
	return nil
}

// Do calls ModelInfer.
func (c *caller) Do(i int) error { return c.do(i, false) }

func (c *caller) do(i int, end bool) error {
	message := c.messages[i%len(c.messages)]
	if c.last = i; c.Length > 0 {
		var err error
		if c.longer, err = c.extend(c.longer, message, end); err != nil {
			return err
		}
		message = c.longer
	}
	err := c.conn.start(c, message)
	if err == nil {
		err = c.result()
	}
	if err == nil {
		err = c.judge()
	}
	if err != nil {
		c.fail()
	}
	return err
}

// result waits for the result of the call.
func (c *caller) result() error {
	for l := c.conn.loop; l != nil && len(c.done) == 0; {
		l.Suspend()
	}
	return <-c.done
}

// Received returns when the last response of a client of a loop arrived.
func (c *caller) Received() time.Time { return c.stamp }

func (c *caller) finish() error {
	if c.sent == 0 {
		return nil
	}
	return c.do(c.last, true)
}

// judge returns the error of a call that has ended in order.
func (c *caller) judge() error {
	switch {
	case c.status == "0":
		return c.checkMessage()
	case c.status == "" && c.http != "200":
		return &ResponseError{Code: "HTTP " + c.http, Text: "not a response of gRPC"}
	}
	name := c.status
	if n, err := strconv.ParseUint(c.status, 10, 8); err == nil {
		name = codes.Code(n).String()
	}
	text, err := url.PathUnescape(c.text)
	if err != nil {
		text = c.text
	}
	return &ResponseError{Code: name, Text: text[:min(len(text), refusalText)]}
}

// checkMessage checks that the response is one message without compression.
func (c *caller) checkMessage() error {
	if len(c.response) < grpcPrefix || c.response[0] != 0 || uint64(binary.BigEndian.Uint32(c.response[1:])) != uint64(len(c.response)-grpcPrefix) {
		return fmt.Errorf("the response of %d bytes is not one message without compression", len(c.response))
	}
	return nil
}

// Outputs decodes the last response.
func (c *caller) Outputs() ([]Output, error) { return readProto(c.response[grpcPrefix:]) }

// Interrupt ends the call under way with an error, and makes all further ones fail. It may be called concurrently.
func (c *caller) Interrupt() { c.conn.interrupt() }

// Close does nothing: the group closes the connection.
func (*caller) Close() error { return nil }
