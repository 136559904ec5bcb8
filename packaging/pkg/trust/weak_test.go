package trust

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"testing"
)

// weakKeys are the points of small order, in all encodings that the standard library
// accepts, and others that have more than one encoding.
var weakKeys = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000080",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0200000000000000000000000000000000000000000000000000000000000000", // no point
}

func TestWeakPublisherKeysAreRefused(t *testing.T) {
	for _, text := range weakKeys {
		raw, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckEd25519(raw); !errors.Is(err, ErrWeakKey) {
			t.Errorf("%s: error is %v", text, err)
		}
	}
	for range 20 {
		key, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckEd25519(key); err != nil {
			t.Errorf("%x: %v", key, err)
		}
	}
}

// One signature that nobody made fits all messages: it is why such keys are refused.
func TestAnybodySignsForAWeakKey(t *testing.T) {
	identity := append([]byte{1}, make([]byte, 31)...)
	forged := append(append([]byte{}, identity...), make([]byte, 32)...)
	for _, message := range []string{"1.0.0", "evil"} {
		if !ed25519.Verify(identity, []byte(message), forged) {
			t.Errorf("the forged signature does not fit %s", message)
		}
	}
}
