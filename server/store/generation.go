package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// GenerationSetting is the name of the setting that has the store's generation.
const GenerationSetting = "generation"

// generationBytes make it unlikely that two of the generations that an installation ever
// has are equal. The generation is in every ack token.
const generationBytes = 8

// Generation returns the store's generation, a random text without dashes. The first call
// creates it. Sequence numbers of actions are unique within one generation only: a store
// that is restored from a backup assigns the numbers again that it has assigned since.
func Generation(ctx context.Context, s Settings) (string, error) {
	random := make([]byte, generationBytes)
	_, _ = rand.Read(random) // never fails
	g, err := s.GetOrPut(ctx, GenerationSetting, []byte(hex.EncodeToString(random)))
	return string(g), err
}

// EndGeneration deletes the generation, so that the server that starts next creates
// another. No server may be running.
func EndGeneration(ctx context.Context, s Settings) error {
	return s.Delete(ctx, GenerationSetting)
}
