package custody.benchmarks.append;

/**
 * One measurement, as it is written to stdout.
 *
 * @param stored events that were read back after the repository was closed and opened again; null: not asked for
 * @param note what the repository complained about; null: nothing
 */
record Answer(
        long events,
        double seconds,
        long acknowledgements,
        double p50_ms,
        double p99_ms,
        Long stored,
        String note) {

    Answer with(final Long readBack, final String complaints) {
        return new Answer(events, seconds, acknowledgements, p50_ms, p99_ms, readBack, complaints);
    }
}
