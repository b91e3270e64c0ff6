"""Real flights through a stream that is scaled, by a job that is killed: none lost, none twice.

``python -m examples.flights_demo`` runs it all; the parts are

* :mod:`~examples.flights_demo.data`: the flights, as events, and their checksum;
* :mod:`~examples.flights_demo.job`: the Spark structured-streaming job that writes them;
* :mod:`~examples.flights_demo.board`: the query that reads them while they arrive;
* :mod:`~examples.flights_demo.report`: the Spark batch job that reads them between two cuts;
* :mod:`~examples.flights_demo.picture`: what happened, drawn;
* :mod:`~examples.flights_demo.__main__`: starts, scales, kills, restarts and compares.
"""
