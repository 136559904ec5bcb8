package webhook

// SetHeaders lets tests sign with a known secret, id and time.
var SetHeaders = setHeaders
