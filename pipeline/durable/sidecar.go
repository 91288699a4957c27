package durable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// sidecar lists the parts of a chunk and the keys of their rows. It is written after each part, so a chunk continues
// behind its last part, and later jobs find the results of rows. Its file is one line of JSON, followed by 16 bytes for
// each row with a result, in the order of the parts.
type sidecar struct {
	Job       string      `json:"job"`
	Run       string      `json:"run"`
	Recipe    string      `json:"recipe"`
	ChunkRows int64       `json:"chunk_rows"`
	Number    int64       `json:"number"` // of the chunk
	First     int64       `json:"first_row"`
	Rows      int64       `json:"rows"`
	Sum       string      `json:"sum"`  // of the chunk's content
	Next      int64       `json:"next"` // rows of the chunk that the parts cover
	Parts     []partEntry `json:"parts"`
	Error     string      `json:"error,omitempty"` // of the first failed row

	keys []rowKey
}

// partEntry is a part with what the manifest does not show.
type partEntry struct {
	job.Part
	Sum    string `json:"sum"`    // of the rows (see dataset.Sum)
	Reused int64  `json:"reused"` // rows from earlier jobs
}

// whole reports whether the parts cover the chunk.
func (s *sidecar) whole() bool { return s.Next == s.Rows }

// count returns the rows of the parts.
func (s *sidecar) count() (r job.Rows) {
	for i := range s.Parts {
		r.Done += s.Parts[i].Rows
		r.Failed += s.Parts[i].Failed
		r.Reused += s.Parts[i].Reused
	}
	return r
}

func (s *sidecar) encode() ([]byte, error) {
	b, err := json.Marshal(s)
	b = append(b, '\n')
	for i := range s.keys {
		b = append(b, s.keys[i][:]...)
	}
	return b, err
}

func (s *sidecar) decode(b []byte) error {
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || len(rest)%len(rowKey{}) != 0 {
		return errors.New("it is cut off")
	}
	if err := json.Unmarshal(line, s); err != nil {
		return err
	}
	s.keys = make([]rowKey, len(rest)/len(rowKey{}))
	for i := range s.keys {
		s.keys[i] = rowKey(rest[i*len(rowKey{}):])
	}
	if int64(len(s.keys)) != s.count().Done {
		return errors.New("its keys are not those of its rows")
	}
	return nil
}

// readSidecar returns the sidecar of an object; nil if there is none, or a damaged one.
func readSidecar(ctx context.Context, out *dataset.Output, key string) (*sidecar, error) {
	text, err := out.Get(ctx, key)
	if err != nil {
		return nil, ignore(err, status.NotFound)
	}
	s := &sidecar{}
	if s.decode(text) != nil {
		s = nil
	}
	return s, nil
}

func (s *sidecar) write(ctx context.Context, out *dataset.Output) error {
	text, err := s.encode()
	if err != nil {
		return err
	}
	return out.Put(ctx, sidecarKey(s.Run, s.Number), text)
}

// intact reports whether a part is as it was written. An error is that of the storage.
func intact(ctx context.Context, out *dataset.Output, p *job.Part) (bool, error) {
	r, err := out.Open(ctx, p.Path)
	if err != nil {
		return false, ignore(err, status.NotFound, status.InvalidArg)
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		return false, ignore(err, status.NotFound, status.InvalidArg)
	}
	return n == p.Bytes && hex.EncodeToString(sum.Sum(nil)) == p.Sum, nil
}

// ignore returns nil for errors of the codes.
func ignore(err error, codes ...status.Code) error {
	for _, c := range codes {
		if status.CodeOf(err) == c {
			return nil
		}
	}
	return err
}

// intact reports whether all parts are.
func (s *sidecar) intact(ctx context.Context, out *dataset.Output) (bool, error) {
	for i := range s.Parts {
		p := &s.Parts[i].Part
		if ok, err := intact(ctx, out, p); err != nil || !ok {
			return false, err
		}
		if p.Errors != "" {
			r, err := out.Open(ctx, p.Errors)
			if err != nil {
				return false, ignore(err, status.NotFound)
			}
			_ = r.Close()
		}
	}
	return true, nil
}
