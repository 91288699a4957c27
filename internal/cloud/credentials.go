package cloud

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// credentialFile is what the file that TRITON_CLOUD_CREDENTIAL_PATH names holds: keys
// by the beginning of addresses. The longest that fits counts, "" fits all.
type credentialFile struct {
	GS map[string]string   `json:"gs"`
	S3 map[string]s3Keys   `json:"s3"`
	AS map[string]azureKey `json:"as"`
}

type s3Keys struct {
	Secret  string `json:"secret_key"`
	ID      string `json:"key_id"`
	Region  string `json:"region"`
	Token   string `json:"session_token"`
	Profile string `json:"profile"`
}

type azureKey struct {
	Account string `json:"account_str"`
	Key     string `json:"account_key"`
}

// maxCredentials bounds the file's size in bytes.
const maxCredentials = 1 << 20

// readCredentials reads the file that the environment names, if any. Its error never
// shows what the file holds.
func readCredentials(env func(string) string) (*credentialFile, error) {
	path := env("TRITON_CLOUD_CREDENTIAL_PATH")
	c := new(credentialFile)
	if path == "" {
		return c, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxCredentials:
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: '%s' is no file of credentials", path)
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "TRITON_CLOUD_CREDENTIAL_PATH: '%s' cannot be read: %w", path, err)
	}
	return c, nil
}

// longest returns the entry with the longest key that the address begins with.
func longest[T any](entries map[string]T, address string) (best T, found bool) {
	at := -1
	for prefix, v := range entries {
		if len(prefix) > at && strings.HasPrefix(address, prefix) {
			best, at = v, len(prefix)
		}
	}
	return best, at >= 0
}
