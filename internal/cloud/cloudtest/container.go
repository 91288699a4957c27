package cloudtest

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// MakeContainer makes a container of an Azure account at a URL.
func MakeContainer(tb testing.TB, url, account, key, name string) {
	tb.Helper()
	shared, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(url+"/"+name, shared, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := c.Create(tb.Context(), nil); err != nil {
		tb.Fatal(err)
	}
}
