package download

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	checkpointKind    = "download-part"
	checkpointVersion = 1
)

// checkpoint is the record beside a part: which file it is the beginning of, and how much
// of it is durable. Bytes after that may be zeros after a power cut. Without a valid
// checkpoint the download begins again.
type checkpoint struct {
	Digest string `json:"digest"` // SHA-512 of the whole file, which identifies it
	// URL and Tag are those of the last answer, for If-Range.
	URL    string `json:"url"`
	Tag    string `json:"tag,omitempty"`
	Length int64  `json:"length"`
	SHA512 string `json:"sha512"` // of the first Length bytes
}

// fits reports whether the part may be the beginning of the wanted file.
func (n checkpoint) fits(want Want) bool {
	return n.Length > 0 && n.Length <= want.Size && sameDigest(n.Digest, want.SHA512)
}

func validDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha512.Size
}

func sameDigest(a, b string) bool { return strings.EqualFold(a, b) }

func digestOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// accept reports whether final exists and is the wanted file. It removes another file.
func (f *Fetcher) accept(ctx context.Context, final string, want Want) (bool, error) {
	fi, err := f.Disk.Lstat(op, final)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, onDisk(final, err)
	}
	good := fi.Mode().IsRegular()
	if good {
		if good, err = f.isWanted(ctx, final, want); err != nil {
			return false, err
		}
	}
	dir := filepath.Dir(final)
	if good {
		// After a crash the rename may not be durable yet.
		if err := f.Disk.SyncDir(op, dir); err != nil {
			return false, onDisk(dir, err)
		}
		if err := errors.Join(disk.RemoveCopies(f.Disk, opCheckpoint, final+checkpointSuffix), f.Disk.Remove(op, final+partSuffix)); err != nil {
			return false, onDisk(dir, err)
		}
		return true, nil
	}
	if err := f.Disk.Remove(op, final); err != nil {
		return false, onDisk(final, err)
	}
	return false, nil
}

// isWanted reads the whole file and compares it with want. It returns false for a file
// that cannot be read.
func (f *Fetcher) isWanted(ctx context.Context, final string, want Want) (bool, error) {
	file, err := f.Disk.OpenFile(op, final, os.O_RDWR, 0)
	if err != nil {
		return false, nil
	}
	defer file.Close()
	h := sha512.New()
	n, err := hashUpTo(ctx, h, file, want.Size+1)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil || n != want.Size || !sameDigest(digestOf(h), want.SHA512) {
		return false, nil
	}
	// The file may have been copied here by hand and not be durable.
	if err := file.Sync(); err != nil {
		return false, onDisk(final, err)
	}
	return true, nil
}

// hashUpTo adds up to n bytes of r to h and returns their number.
func hashUpTo(ctx context.Context, h hash.Hash, r io.Reader, n int64) (int64, error) {
	const step = 1 << 20 // between two checks of ctx
	var read int64
	for read < n && ctx.Err() == nil {
		m, err := io.CopyN(h, r, min(step, n-read))
		read += m
		if errors.Is(err, io.EOF) {
			return read, nil
		}
		if err != nil {
			return read, err
		}
	}
	return read, ctx.Err()
}
