package trust

import (
	"bytes"
	"errors"

	"filippo.io/edwards25519"
)

// ErrWeakKey is returned for a public key for which anybody can make signatures.
var ErrWeakKey = errors.New("the key is weak: anybody can sign for it")

// CheckEd25519 refuses a public key that is no point of the curve in its one encoding, or
// that has a small order, such as the key of zeros. Signatures by such keys verify for
// messages that nobody has signed; the standard library accepts them, as RFC 8032 permits.
func CheckEd25519(key []byte) error {
	p, err := new(edwards25519.Point).SetBytes(key)
	if err != nil || !bytes.Equal(p.Bytes(), key) {
		return ErrWeakKey
	}
	if p.MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return ErrWeakKey
	}
	return nil
}
