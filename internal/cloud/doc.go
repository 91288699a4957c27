// Package cloud reads and writes objects of buckets: s3:// of Amazon and of servers
// that speak its protocol, gs:// of Google, as:// of Azure. Open turns an address into
// a Bucket; where credentials come from is in credentials.go. Repositories keep what
// they read from a bucket on disk; that is not done here.
//
// Files: bucket.go is the contract and Open, address.go reads addresses,
// credentials.go finds keys, s3.go, gcs.go and azure.go are the kinds of buckets,
// copy.go downloads a folder's object with ranged reads that go on where one broke.
package cloud
