package elastic_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// BenchmarkPackageData measures storing and reading a package of a usual size.
func BenchmarkPackageData(b *testing.B) {
	const size = 200 << 20
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content) // never fails
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	opts, err := options(esnode.Shared(b))
	if err != nil {
		b.Fatal(err)
	}
	s, err := elastic.Open(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"put", func() error { return s.PackageData().Put(b.Context(), digest, size, bytes.NewReader(content)) }},
		{"get", func() error { return s.PackageData().Get(b.Context(), digest, io.Discard) }},
		{"list", func() error { _, err := s.PackageData().List(b.Context()); return err }},
		{"delete", func() error { return s.PackageData().Delete(b.Context(), digest) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
