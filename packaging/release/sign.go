package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/trust"
)

const (
	sumsFile     = "SHA256SUMS"
	keyFile      = "muster.pub"
	signatureEnd = ".minisig"
)

// signingKey is a publisher's private key.
type signingKey struct{ trust.PrivateKey }

const makeKey = "make one with `muster package keygen --key release.key`, and keep it off this machine when the release is done"

// readKey reads the private key, and returns nil if the release is to have no signature.
func readKey(file string, unsigned bool) (*signingKey, error) {
	switch {
	case unsigned && file != "":
		return nil, fmt.Errorf("--unsigned and a key exclude each other: leave one out, or unset %s", keyEnv)
	case unsigned:
		return nil, nil
	case file == "":
		return nil, fmt.Errorf("--key is missing: name the private key that signs the release, or set %s; %s. For a trial without a signature: --unsigned", keyEnv, makeKey)
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--key: %w: %s", err, makeKey)
	}
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	key, err := trust.DecryptPrivateKey(os.Getenv(passwordEnv), text)
	if errors.Is(err, trust.ErrNoPassword) {
		return nil, fmt.Errorf("--key: %s is encrypted: set %s to its password", file, passwordEnv)
	}
	if err != nil {
		return nil, fmt.Errorf("--key: %s: %w", file, err)
	}
	return &signingKey{key}, nil
}

// sums writes the checksums of all files, and the signature of these.
func (r *release) sums(context.Context) error {
	entries, err := os.ReadDir(r.dir) // sorted by name
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, e := range entries {
		sum, err := digest(filepath.Join(r.dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sum, e.Name())
	}
	if err := os.WriteFile(filepath.Join(r.dir, sumsFile), text.Bytes(), 0o644); err != nil || r.Key == nil {
		return err
	}
	signature, err := r.Key.Sign(sumsFile, &text)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.dir, sumsFile+signatureEnd), signature, 0o644),
		os.WriteFile(filepath.Join(r.dir, keyFile), r.Key.Public().File(), 0o644),
	)
}

func digest(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
