package cloud

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// credentialFile is the content of the file at TRITON_CLOUD_CREDENTIAL_PATH: credentials by address prefix. The
// longest matching prefix counts; "" matches all.
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

// maxCredentials bounds the size of the file in bytes.
const maxCredentials = 1 << 20

// readCredentials reads the credential file, if the environment names one. Its errors never contain content of the
// file.
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

// longestPrefix returns the entry with the longest prefix of the address.
func longestPrefix[T any](entries map[string]T, address string) (best T, found bool) {
	at := -1
	for prefix, v := range entries {
		if len(prefix) > at && strings.HasPrefix(address, prefix) {
			best, at = v, len(prefix)
		}
	}
	return best, at >= 0
}
