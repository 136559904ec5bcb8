package store

// SkipUnreadable reads pages of an ordered stream, by read, until one has a document that can be read, or
// there are no more: a reader goes on after the last document that it has got, so an empty page that is
// not the last would hold it for ever. read returns the readable documents after a sequence number, and
// the number of the last document that it has looked at, which is after if there are none.
func SkipUnreadable[T any](after int64, read func(after int64) (page []T, last int64, err error)) ([]T, error) {
	for {
		page, last, err := read(after)
		if err != nil || len(page) > 0 || last <= after {
			return page, err
		}
		after = last
	}
}
