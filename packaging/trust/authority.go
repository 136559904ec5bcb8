package trust

import (
	"context"
	"io"
)

// Fetch gets a small file that lies beside the archive at its source, by name.
type Fetch func(ctx context.Context, name string) ([]byte, error)

// Authority says, before an archive is downloaded, what it has to be.
type Authority interface {
	// Expect learns what the trusted publishers say about the archive of that
	// name. Any error means that it may not be installed.
	Expect(ctx context.Context, fileName string, beside Fetch) (*Expectation, error)
}

// Expectation is what the publishers say about one archive.
type Expectation struct {
	// Size of the archive and Unpacked of what it holds, in bytes; -1 where the
	// publishers do not say.
	Size, Unpacked int64
	// SHA512 of the archive in hexadecimal; empty where it is known only by its
	// signature.
	SHA512 string
	// Floor is the lowest full version a host may be moved to, except back by
	// an operator's word; empty when there is none.
	Floor string
	// Verify reads the archive to its end. Any error means no.
	Verify func(archive io.Reader) (Statement, error)
}

var _ Authority = Keyring{}

// Expect implements [Authority] with the detached signature beside the archive.
func (r Keyring) Expect(ctx context.Context, fileName string, beside Fetch) (*Expectation, error) {
	if len(r) == 0 {
		return nil, ErrNoKeys
	}
	signature, err := beside(ctx, fileName+SignatureSuffix)
	if err != nil {
		return nil, err
	}
	return &Expectation{Size: -1, Unpacked: -1, Verify: func(archive io.Reader) (Statement, error) {
		return r.Verify(fileName, archive, signature)
	}}, nil
}
