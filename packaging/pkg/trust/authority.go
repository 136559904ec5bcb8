package trust

import (
	"context"
	"io"
)

// Fetch returns a small file of a source by its name. It reads at most max bytes, and for
// a longer file returns an error or those bytes. An error that wraps fs.ErrNotExist means
// that the source certainly has no such file; any other error leaves that open.
type Fetch func(ctx context.Context, name string, max int64) ([]byte, error)

// Authority states the size and digest an archive must have, before the archive
// is downloaded.
type Authority interface {
	// Expect returns what the trusted publishers say about the archive called
	// fileName. beside fetches files from beside the archive, and may be nil. Any error
	// means that the archive must not be installed.
	Expect(ctx context.Context, fileName string, beside Fetch) (*Expectation, error)
	// Floor returns the lowest full version of a component, or with an empty name, of the
	// agent, that the publishers let the server move a host to, or "": the current one, or
	// if that cannot be fetched, the last one verified on this host.
	Floor(ctx context.Context, component string) string
}

// Expectation is what the publishers say about one archive.
type Expectation struct {
	// Size of the archive and Unpacked of what it holds, in bytes. The publishers always say both.
	Size, Unpacked int64
	// SHA512 of the archive in hexadecimal.
	SHA512 string
	// Archive identifies the archive's bytes before they are fetched, by its SHA-512. Equal
	// texts mean equal bytes.
	Archive string
	// Floor is the lowest full version of the agent, or of the component, that may be
	// installed. Empty means that there is no floor.
	Floor string
	// Downgrade means that the publishers let hosts go back to this version now.
	Downgrade bool
	// Verify reads the archive to its end. Any error means that the archive must
	// not be installed.
	Verify func(archive io.Reader) (Statement, error)
}
