package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/muster-fleet/muster/server/store"
)

// Compared is what two stores have of a noun.
type Compared struct {
	Noun       string `json:"noun"`
	From       int    `json:"from"`
	To         int    `json:"to"`
	FromDigest string `json:"from_digest"`
	ToDigest   string `json:"to_digest"`
	// Differs is the first id, in the order of their bytes, whose document is not
	// the same, or in one store alone; empty: all are the same.
	Differs string `json:"differs,omitempty"`
}

// Same says whether both stores have the same.
func (c Compared) Same() bool { return c.From == c.To && c.FromDigest == c.ToDigest }

// tally is how many documents there are, and the sum of their SHA-256 modulo
// 2^256: the same for the same documents in any order. A sum, unlike exclusive or,
// sees a document that is there twice.
type tally struct {
	count int
	sum   [4]uint64
}

func (t *tally) add(digest [sha256.Size]byte) {
	t.count++
	var carry uint64
	for i := range t.sum {
		n := binary.LittleEndian.Uint64(digest[8*i:])
		sum := t.sum[i] + n
		over := sum < n
		sum += carry
		if over || sum < carry {
			t.sum[i], carry = sum, 1
			continue
		}
		t.sum[i], carry = sum, 0
	}
}

func (t *tally) String() string {
	var b []byte
	for _, n := range t.sum {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return hex.EncodeToString(b)
}

// digests calls f with the SHA-256 of every document of a noun: of its place, its
// id and its JSON.
func (n noun) digests(ctx context.Context, s store.Store, since int64, f func(id string, digest [sha256.Size]byte)) error {
	var broken error
	err := n.each(ctx, s, since, func(id string, place int, v any) {
		b, err := canonical(v)
		if err != nil {
			broken = fmt.Errorf("%s: %w", id, err)
		}
		head := binary.AppendUvarint(nil, uint64(place))
		head = binary.AppendUvarint(head, uint64(len(id)))
		f(id, sha256.Sum256(append(append(head, id...), b...)))
	})
	return cmp.Or(err, broken)
}

// Verify reads both stores whole and compares them noun by noun. Neither may be
// written to meanwhile. What differs is no error; see Compared.Same.
func Verify(ctx context.Context, from, to store.Store, say func(Step)) ([]Compared, error) {
	var out []Compared
	for _, n := range nouns {
		one, err := n.verify(ctx, from, to, say)
		if err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// sayEvery is how many documents are read between two steps that are told.
const sayEvery = 1_000

func (n noun) verify(ctx context.Context, from, to store.Store, say func(Step)) (Compared, error) {
	since := int64(0)
	if n.since != nil {
		var err error
		if since, err = n.since(ctx, from); err != nil {
			return Compared{}, err
		}
	}
	done := 0 // in both
	take := func(s store.Store) (t tally, err error) {
		err = again(ctx, func() error {
			t = tally{}
			return n.digests(ctx, s, since, func(_ string, digest [sha256.Size]byte) {
				t.add(digest)
				if done++; done%sayEvery == 0 {
					say(Step{Noun: n.name, Done: done})
				}
			})
		})
		return t, err
	}
	a, err := take(from)
	if err != nil {
		return Compared{}, err
	}
	b, err := take(to)
	if err != nil {
		return Compared{}, err
	}
	out := Compared{Noun: n.name, From: a.count, To: b.count, FromDigest: a.String(), ToDigest: b.String()}
	if !out.Same() {
		out.Differs, err = n.firstDiffering(ctx, from, to, since)
	}
	say(Step{Noun: n.name, Done: b.count, Total: b.count, Ended: true})
	return out, err
}

// firstDiffering holds a noun's ids in memory: it is called when something is
// wrong.
func (n noun) firstDiffering(ctx context.Context, from, to store.Store, since int64) (string, error) {
	there := map[string][sha256.Size]byte{}
	err := n.digests(ctx, to, since, func(id string, digest [sha256.Size]byte) { there[id] = digest })
	if err != nil {
		return "", err
	}
	first := ""
	note := func(id string) {
		if first == "" || id < first {
			first = id
		}
	}
	err = n.digests(ctx, from, since, func(id string, digest [sha256.Size]byte) {
		if there[id] != digest {
			note(id)
		}
		delete(there, id)
	})
	for id := range there {
		note(id)
	}
	return first, err
}

// Count says how many documents of each noun there are to be moved.
func Count(ctx context.Context, s store.Store) ([]Copied, error) {
	var out []Copied
	for _, n := range nouns {
		one := Copied{Noun: n.name}
		if err := n.each(ctx, s, 0, func(string, int, any) { one.Read++ }); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		out = append(out, one)
	}
	return out, nil
}
