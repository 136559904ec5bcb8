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

	"aead.dev/minisign"
)

const (
	sumsFile     = "SHA256SUMS"
	keyFile      = "muster.pub"
	signatureEnd = ".minisig"
)

// signingKey is the private key of the releases.
type signingKey struct{ minisign.PrivateKey }

const makeKey = "make one with `minisign -G -s release.key -p release.pub`, and keep it off this machine when the release is done"

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
	var key signingKey
	switch text = bytes.TrimSpace(text); {
	case !minisign.IsEncrypted(text):
		err = key.UnmarshalText(text)
	case os.Getenv(passwordEnv) == "":
		err = fmt.Errorf("is encrypted: set %s to its password", passwordEnv)
	default:
		key.PrivateKey, err = minisign.DecryptKey(os.Getenv(passwordEnv), text)
	}
	if err != nil {
		return nil, fmt.Errorf("--key: %s: %w", file, err)
	}
	return &key, nil
}

// sign returns the signature file of a file. Its trusted comment names the file, as minisign's
// do, and no time: a release can be reproduced.
func (k *signingKey) sign(name string, text []byte) ([]byte, error) {
	digest := minisign.NewReader(bytes.NewReader(text))
	if _, err := io.Copy(io.Discard, digest); err != nil {
		return nil, err
	}
	return digest.SignWithComments(k.PrivateKey, "file:"+name+"\thashed", "signature of a Muster release"), nil
}

// public returns the text of the public key's file.
func (k *signingKey) public() []byte {
	p := k.Public().(minisign.PublicKey)
	return fmt.Appendf(nil, "untrusted comment: minisign public key %016X\n%s\n", p.ID(), p)
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
	signature, err := r.Key.sign(sumsFile, text.Bytes())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.dir, sumsFile+signatureEnd), signature, 0o644),
		os.WriteFile(filepath.Join(r.dir, keyFile), r.Key.public(), 0o644),
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
