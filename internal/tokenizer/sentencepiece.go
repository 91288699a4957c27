package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// spaceMark is the character that sentencepiece writes for a space.
const spaceMark = "\u2581"

// DefineSentencePiece reads a sentencepiece .model file of type unigram or BPE. The ids are those of the library, PyPI
// sentencepiece 0.2.3, without the marks of begin and end, unless bos or eos ask for them.
func DefineSentencePiece(data []byte, bos, eos bool) (*Definition, error) {
	m, err := parseSentenceModel(data)
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	norm := &sentenceNormalizer{dummy: m.dummyPrefix, remove: m.removeSpaces, space: []byte(" ")}
	if m.escapeSpaces {
		norm.space = []byte(spaceMark)
	}
	if len(m.charsmap) > 0 {
		if norm.charsmap, err = newPrecompiled(m.charsmap); err != nil {
			return nil, fmt.Errorf("sentencepiece model: %w", err)
		}
	}
	d := &Definition{Version: version, Decoder: m.decoder()}
	if d.template, err = markTemplate(bos, eos, m.control); err != nil {
		return nil, fmt.Errorf("sentencepiece model: %w", err)
	}
	if d.Model, err = m.section(); err != nil {
		return nil, err
	}
	d.finish = func(t *Tokenizer) { m.finish(t, norm) }
	return d, nil
}

// check returns an error for properties that the engine would treat differently from the library.
func (m *sentenceModel) check() error {
	unknown, seen := 0, map[string]bool{}
	for i, p := range m.pieces {
		switch {
		case p.text == "" || len(p.text) > maxEntry || !utf8.ValidString(p.text):
			return fmt.Errorf("sentencepiece model: piece %d is not a text of 1 to %d bytes", i, maxEntry)
		case seen[p.text]:
			return fmt.Errorf("sentencepiece model has piece '%s' twice", p.text)
		case math.IsNaN(float64(p.score)) || math.IsInf(float64(p.score), 0):
			return fmt.Errorf("sentencepiece model: piece '%s' has score %v, expected a number", p.text, p.score)
		case p.kind < pieceNormal || p.kind > pieceByte:
			return fmt.Errorf("sentencepiece model: piece '%s' has unknown type %d", p.text, p.kind)
		case p.kind == pieceUnused && m.kind == sentenceBPE:
			return unsupported("unused pieces of a sentencepiece BPE model")
		case p.kind == pieceUnknown:
			unknown++
		}
		seen[p.text] = true
	}
	switch {
	case unknown != 1:
		return fmt.Errorf("sentencepiece model has %d unknown pieces, expected 1", unknown)
	case m.kind != sentenceUnigram && m.kind != sentenceBPE:
		return unsupported("sentencepiece model of a type other than unigram and BPE")
	case m.spaceAsSuffix:
		return unsupported("treat_whitespace_as_suffix of a sentencepiece model")
	case m.denormalizes:
		return unsupported("denormalizer of a sentencepiece model")
	}
	return nil
}

// name returns the entry of a piece in the engine's vocabulary. Pieces that the library never finds in a text have names that no
// text contains.
func (m *sentenceModel) name(i int) string {
	switch p := m.pieces[i]; p.kind {
	case pieceNormal, pieceUserDefined:
		return p.text
	default:
		return fmt.Sprintf("\uFFFF%d\uFFFE", i)
	}
}

func (m *sentenceModel) unknown() int {
	return slices.IndexFunc(m.pieces, func(p sentencePiece) bool { return p.kind == pieceUnknown })
}

func (m *sentenceModel) section() (json.RawMessage, error) {
	if m.kind == sentenceBPE {
		return m.bpeSection()
	}
	vocab := make([][2]any, len(m.pieces))
	for i, p := range m.pieces {
		if vocab[i] = [2]any{m.name(i), p.score}; p.kind != pieceNormal {
			vocab[i][1] = 0
		}
	}
	return json.Marshal(map[string]any{"type": "Unigram", "unk_id": m.unknown(), "vocab": vocab, "byte_fallback": m.byteFallback})
}

// byScore returns the indices of the pieces, best first.
func (m *sentenceModel) byScore() []int {
	order := make([]int, len(m.pieces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.pieces[b].score, m.pieces[a].score) })
	return order
}

// ranks returns the order of the pieces by score, equal for equal scores.
func (m *sentenceModel) ranks() []int32 {
	out, order := make([]int32, len(m.pieces)), m.byScore()
	for rank, i := range order {
		if out[i] = int32(rank); rank > 0 && m.pieces[i].score == m.pieces[order[rank-1]].score {
			out[i] = out[order[rank-1]]
		}
	}
	return out
}

// bpeSection derives merges from the pieces: every way to cut one into two others, best piece first. For example, piece "low" gives
// "l ow" and "lo w" where those are pieces.
func (m *sentenceModel) bpeSection() (json.RawMessage, error) {
	vocab := map[string]int{}
	for i := range m.pieces {
		vocab[m.name(i)] = i
	}
	normal := func(s string) bool {
		i, ok := vocab[s]
		return ok && m.pieces[i].kind == pieceNormal
	}
	merges := [][2]string{}
	for _, i := range m.byScore() {
		if m.pieces[i].kind == pieceNormal {
			merges = appendCuts(merges, m.pieces[i].text, true, normal)
		}
	}
	return bpeModel(vocab, merges, map[string]any{"unk_token": m.name(m.unknown()), "fuse_unk": true, "byte_fallback": m.byteFallback})
}

// appendCuts appends the pairs of known texts that s can be cut into; whole characters where chars is set.
func appendCuts(dst [][2]string, s string, chars bool, known func(string) bool) [][2]string {
	for at := 1; at < len(s); at++ {
		if chars && !utf8.RuneStart(s[at]) {
			continue
		}
		if known(s[:at]) && known(s[at:]) {
			dst = append(dst, [2]string{s[:at], s[at:]})
		}
	}
	return dst
}

// bpeModel returns a model section of type BPE.
func bpeModel(vocab map[string]int, merges [][2]string, options map[string]any) (json.RawMessage, error) {
	c := map[string]any{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
	}
	maps.Copy(c, options)
	return json.Marshal(c)
}

// surfaceMark precedes the decoded text of an unknown piece, so that Strip leaves its spaces.
const surfaceMark = "\uFFFEunknown\uFFFE"

// decoder returns the decoder section: marks to spaces, bytes to characters, and the first space, or all at the start, removed.
func (m *sentenceModel) decoder() json.RawMessage {
	first := 0
	switch {
	case m.removeSpaces:
		first = MaxText
	case m.dummyPrefix:
		first = 1
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"%s"},"content":" "},`+
		`{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":%d,"stop":0},`+
		`{"type":"Replace","pattern":{"String":"%s"},"content":""}]}`, spaceMark, first, surfaceMark))
}

// control returns the id of a control piece, -1 without one.
func (m *sentenceModel) control(text string) int {
	return slices.IndexFunc(m.pieces, func(p sentencePiece) bool { return p.text == text && p.kind == pieceControl })
}

// finish sets properties that a tokenizer.json cannot express: the normalizer, the user's symbols, the bytes, and the names of
// pieces that no text contains.
func (m *sentenceModel) finish(t *Tokenizer, norm *sentenceNormalizer) {
	var symbols []AddedToken
	var fallback [256]int32
	for i := range fallback {
		fallback[i] = noID
	}
	for i, p := range m.pieces {
		id := int32(i)
		if p.kind != pieceNormal {
			t.added[id] = p.text
		}
		switch p.kind {
		case pieceUserDefined:
			symbols = append(symbols, AddedToken{ID: id, Content: p.text, Normalized: true})
		case pieceByte:
			if b, ok := fallbackByte([]byte(p.text)); ok {
				fallback[b] = id
			}
		case pieceUnknown:
			t.added[id] = surfaceMark + m.unknownSurface
		case pieceControl:
			t.special[p.text] = true
		}
	}
	if t.after = newAddedTokens(symbols); t.after != nil {
		norm.symbols = t.after.trie
	}
	t.normalizer = norm
	switch model := t.model.(type) {
	case *bpe:
		ranks := m.ranks()
		model.rankBy(func(id int32) int32 { return ranks[id] })
		if m.byteFallback {
			model.fallback = &fallback
		}
	case *unigram:
		if model.sentence = m.scores(); len(symbols) > 0 {
			model.cache = nil
		}
		if m.byteFallback {
			model.fallback = &fallback
		}
	}
}

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
			m.pieces = append(m.pieces, sentencePiece{kind: pieceNormal})
			return eachField(b, m.pieces[len(m.pieces)-1].set)
		case 2, 3, 5: // TrainerSpec, NormalizerSpec and the NormalizerSpec of decoding
			return eachField(b, func(field protowire.Number, v uint64, b []byte) error {
				m.set(fieldPath{n, field}, v, b)
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

func (p *sentencePiece) set(n protowire.Number, v uint64, b []byte) error {
	switch n {
	case 1:
		p.text = string(b)
	case 2:
		p.score = math.Float32frombits(uint32(v))
	case 3:
		p.kind = v
	}
	return nil
}

// fieldPath is the number of a message inside the model, and that of a field of it.
type fieldPath [2]protowire.Number

func (m *sentenceModel) set(f fieldPath, v uint64, b []byte) {
	switch f {
	case fieldPath{2, 3}:
		m.kind = v
	case fieldPath{2, 24}:
		m.spaceAsSuffix = v != 0
	case fieldPath{2, 35}:
		m.byteFallback = v != 0
	case fieldPath{2, 44}:
		m.unknownSurface = string(b)
	case fieldPath{3, 2}:
		m.charsmap = b
	case fieldPath{3, 3}:
		m.dummyPrefix = v != 0
	case fieldPath{3, 4}:
		m.removeSpaces = v != 0
	case fieldPath{3, 5}:
		m.escapeSpaces = v != 0
	case fieldPath{5, 2}:
		m.denormalizes = m.denormalizes || len(b) > 0
	}
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
