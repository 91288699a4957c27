package tokenizer

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of a sentencepiece model's pieces.
const (
	pieceNormal = iota + 1
	pieceUnknown
	pieceControl
	pieceUserDefined
	pieceUnused
	pieceByte
)

// The types of sentencepiece models.
const (
	sentenceUnigram = 1
	sentenceBPE     = 2
)

// sentencePiece is one entry of a model's vocabulary.
type sentencePiece struct {
	text  string
	score float32
	kind  uint64
}

// sentenceModel holds the fields of a sentencepiece .model file that encoding and decoding need.
type sentenceModel struct {
	pieces         []sentencePiece
	kind           uint64
	byteFallback   bool
	spaceAsSuffix  bool
	unknownSurface string
	charsmap       []byte
	dummyPrefix    bool
	removeSpaces   bool
	escapeSpaces   bool
	denormalizes   bool
}

// parseSentenceModel reads the protocol buffer (sentencepiece_model.proto, ModelProto).
func parseSentenceModel(data []byte) (*sentenceModel, error) {
	m := &sentenceModel{kind: sentenceUnigram, unknownSurface: " \u2047 ", dummyPrefix: true, removeSpaces: true, escapeSpaces: true}
	err := eachField(data, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case 1:
			p := sentencePiece{kind: pieceNormal}
			err := p.parse(b)
			m.pieces = append(m.pieces, p)
			return err
		case 2:
			return eachField(b, m.trainer)
		case 3:
			return eachField(b, m.normalizer)
		case 5:
			return eachField(b, func(n protowire.Number, _ uint64, b []byte) error {
				m.denormalizes = m.denormalizes || n == 2 && len(b) > 0
				return nil
			})
		default:
			return nil
		}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("sentencepiece model: %w", err)
	case len(m.pieces) == 0 || len(m.pieces) > maxID:
		return nil, fmt.Errorf("sentencepiece model has %d pieces, expected 1 to %d", len(m.pieces), maxID)
	}
	return m, nil
}

func (p *sentencePiece) parse(b []byte) error {
	return eachField(b, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case 1:
			p.text = string(b)
		case 2:
			p.score = math.Float32frombits(uint32(v))
		case 3:
			p.kind = v
		}
		return nil
	})
}

// trainer reads a field of TrainerSpec.
func (m *sentenceModel) trainer(n protowire.Number, v uint64, b []byte) error {
	switch n {
	case 3:
		m.kind = v
	case 24:
		m.spaceAsSuffix = v != 0
	case 35:
		m.byteFallback = v != 0
	case 44:
		m.unknownSurface = string(b)
	}
	return nil
}

// normalizer reads a field of NormalizerSpec.
func (m *sentenceModel) normalizer(n protowire.Number, v uint64, b []byte) error {
	switch n {
	case 2:
		m.charsmap = b
	case 3:
		m.dummyPrefix = v != 0
	case 4:
		m.removeSpaces = v != 0
	case 5:
		m.escapeSpaces = v != 0
	}
	return nil
}

var errWire = errors.New("not a valid protocol buffer")

// eachField calls do with the number and the value of each field: v for numbers, b for texts and messages.
func eachField(data []byte, do func(n protowire.Number, v uint64, b []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(data)
			v = uint64(w)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return errWire
		}
		if err := do(number, v, b); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
