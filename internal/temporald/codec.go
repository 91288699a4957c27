package temporald

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// The metadata of an encrypted payload, as in the samples of Temporal's SDKs.
const (
	metaEncoding = "encoding"
	metaKey      = "encryption-key-id"
	encrypted    = "binary/encrypted"
)

// Codec encrypts payloads with AES-GCM, so that the Temporal server stores neither the orders of jobs nor the places of
// their data in plain text. Payloads that are not encrypted are read as they are. It is safe for concurrent use.
type Codec struct {
	first string // the id of the key that encrypts
	keys  map[string]cipher.AEAD
}

var _ converter.PayloadCodec = (*Codec)(nil)

// ReadCodec reads the keys of a file: one per line, of 16, 24 or 32 bytes in base64 or hexadecimal. The first one encrypts,
// all decrypt: a new key is put before the old one, which is removed when no job of its time is needed any more. Lines
// that begin with # are ignored.
func ReadCodec(file string) (*Codec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &Codec{keys: map[string]cipher.AEAD{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := decodeKey(line)
		if err != nil {
			return nil, fmt.Errorf("'%s', line %d: %w", file, n, err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		seal, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(key)
		id := hex.EncodeToString(sum[:6])
		if c.first == "" {
			c.first = id
		}
		c.keys[id] = seal
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if c.first == "" {
		return nil, fmt.Errorf("'%s' has no key: expected lines of 32 bytes in base64, for example from `openssl rand -base64 32`", file)
	}
	return c, nil
}

// decodeKey decodes a line. Hexadecimal digits are tried first: they are base64 of another length, too.
func decodeKey(line string) ([]byte, error) {
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString} {
		if key, err := decode(line); err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, errors.New("expected a key of 16, 24 or 32 bytes in base64 or hexadecimal")
}

// Encode implements converter.PayloadCodec.
func (c *Codec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	list := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		seal := c.keys[c.first]
		nonce := make([]byte, seal.NonceSize(), seal.NonceSize()+len(plain)+seal.Overhead())
		_, _ = rand.Read(nonce) // never fails
		list[i] = &common.Payload{
			Metadata: map[string][]byte{metaEncoding: []byte(encrypted), metaKey: []byte(c.first)},
			Data:     seal.Seal(nonce, nonce, plain, nil),
		}
	}
	return list, nil
}

// Decode implements converter.PayloadCodec.
func (c *Codec) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	list := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[metaEncoding]) != encrypted {
			list[i] = p
			continue
		}
		id := string(p.GetMetadata()[metaKey])
		seal, ok := c.keys[id]
		if !ok {
			return nil, fmt.Errorf("a payload is encrypted with the key '%s', which the file of --temporal-codec-key-file lacks: add the key", id)
		}
		if len(p.GetData()) < seal.NonceSize() {
			return nil, fmt.Errorf("a payload that is encrypted with the key '%s' is cut off", id)
		}
		plain, err := seal.Open(nil, p.GetData()[:seal.NonceSize()], p.GetData()[seal.NonceSize():], nil)
		if err != nil {
			return nil, fmt.Errorf("a payload that is encrypted with the key '%s': %w", id, err)
		}
		list[i] = &common.Payload{}
		if err := proto.Unmarshal(plain, list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}
